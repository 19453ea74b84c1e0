// SPDX-License-Identifier: GPL-2.0

//! What blocks lack, for every pair of requests.

use crate::{
    base::range::PAGE_SIZE,
    state::{
        band::{
            Small,
            MAX_UNITS, //
        },
        lack::Lack, //
    }, //
};

/// Every request that a fine block serves, with its number of units and its alignment in units: first those of each size that need
/// no alignment.
fn requests() -> Vec<(usize, usize, Small)> {
    let aligns = (0..=MAX_UNITS.ilog2()).map(|shift| 1 << shift);
    let of_align = |align| {
        (2..=MAX_UNITS).filter_map(move |units| {
            let small = Small::new(units * PAGE_SIZE, align * PAGE_SIZE, false)?;
            Some((units, align, small))
        })
    };
    aligns.flat_map(of_align).collect()
}

/// Returns whether `lack` says that there is no room for any of `requests`, one after the other.
fn lacking(lack: Lack, requests: &[(usize, usize, Small)]) -> Vec<bool> {
    let lacks = requests.iter().map(|&(_, _, small)| lack.is_of(small));
    lacks.collect()
}

#[test]
fn the_bits_of_a_lack_are_all_it_takes() {
    assert_eq!(Lack::NOTHING.as_bits() + 1, 1 << Lack::BITS);
    let requests = requests();
    for &(_, _, small) in &requests {
        let lack = Lack::of(small);
        // Higher bits belong to somebody else.
        let copy = Lack::from_bits(lack.as_bits() | usize::MAX << Lack::BITS);
        assert_eq!(lacking(lack, &requests), lacking(copy, &requests));
    }
}

#[test]
fn two_lacks_of_one_block_say_no_more_than_each_and_no_less_than_the_second() {
    let requests = requests();
    let lacks: Vec<_> = requests
        .iter()
        .map(|&(_, _, small)| Lack::of(small))
        .collect();
    let each: Vec<_> = lacks.iter().map(|&lack| lacking(lack, &requests)).collect();
    for first in 0..requests.len() {
        for second in 0..requests.len() {
            let both = lacking(lacks[first].or(lacks[second]), &requests);
            let (smaller, larger) = (requests[first], requests[second]);
            let covers = smaller.0 <= larger.0 && smaller.1 <= larger.1;
            for (index, request) in requests.iter().enumerate() {
                let either = each[first][index] || each[second][index];
                assert!(either || !both[index], "no more than each");
                assert!(
                    both[index] || !each[second][index],
                    "no less than the second"
                );
                // Of the first, only what it lacks at an alignment of its own may be forgotten.
                if covers || request.1 == 1 {
                    assert_eq!(both[index], either);
                }
            }
        }
    }
}
