// SPDX-License-Identifier: GPL-2.0

//! Compares bitmaps with vectors of booleans bit by bit, which takes too long in an emulated kernel.

use crate::base::{
    bits::{
        self,
        Bit,
        Run,
        Words,
        BITS,
        UNITS, //
    },
    map::Map, //
};
use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// Alignments, as powers of two: all that fit in a word, and one that does not.
const ALIGNS: core::ops::RangeInclusive<u32> = 0..=BITS.ilog2() + 1;

fn map_of(plain: &[bool]) -> Map {
    let map = Map::new(false);
    for (bit, &set) in plain.iter().enumerate() {
        if set {
            map.set_bit(Bit::in_row(bit));
        }
    }
    map
}

fn words_of(plain: &[bool]) -> Words {
    map_of(plain).words()
}

fn plain_of(map: &Map) -> Vec<bool> {
    Bit::all().map(|bit| map.has(bit)).collect()
}

/// Returns the run of `len` bits from bit `first` on.
fn run(first: usize, len: usize) -> Run {
    Run::new(Bit::new(first).expect("a bit"), len).expect("a run")
}

/// Returns maps with no bits, all bits, single bits, and short and long runs.
fn examples() -> Vec<Vec<bool>> {
    let mut all = vec![vec![false; UNITS], vec![true; UNITS]];
    for period in [2, 3, 5, 7, 31, 63, 64, 65, 130, 200] {
        for set in [1, period / 2, period - 1] {
            for shift in [0, 1, 33] {
                all.push(
                    (shift..UNITS + shift)
                        .map(|bit| bit % period < set)
                        .collect(),
                );
            }
        }
    }
    all
}

/// Returns the first bit of the lowest aligned run of `len` set bits that `is_wanted` accepts.
pub(super) fn lowest(
    plain: &[bool],
    len: usize,
    align: u32,
    is_wanted: impl Fn(usize) -> bool,
) -> Option<usize> {
    (0..=UNITS - len)
        .step_by(1 << align)
        .find(|&first| is_wanted(first) && plain[first..first + len].iter().all(|&set| set))
}

#[test]
fn each_bit_is_set_found_and_cleared_alone() {
    for bit in 0..UNITS {
        let mut plain = vec![false; UNITS];
        plain[bit] = true;
        let words = words_of(&plain);
        assert_eq!(bits::next_set(&words, 0), Some(Bit::in_row(bit)));
        assert_eq!(bits::next_set(&words, bit), Some(Bit::in_row(bit)));
        assert_eq!(bits::next_set(&words, bit + 1), None);
        assert_eq!(bits::last_set(&words), Some(Bit::in_row(bit)));
        assert_eq!(bits::weight(&words), 1);
        let map = map_of(&plain);
        let bit = Bit::in_row(bit);
        map.clear_bit(bit);
        map.insert(bit);
        map.insert(bit);
        assert_eq!(plain_of(&map), plain);
    }
}

#[test]
fn a_bit_is_removed_and_all_others_stay() {
    for mut plain in examples() {
        let map = map_of(&plain);
        for bit in (0..UNITS).step_by(5) {
            plain[bit] = false;
            for _ in 0..2 {
                map.remove_and_fence(Bit::in_row(bit));
                assert_eq!(plain_of(&map), plain);
            }
        }
    }
}

/// Uses `claim_near()`, because `claim()` also searches across words if it finds no run within one.
#[test]
fn each_aligned_bit_of_a_word_is_claimed() {
    for align in ALIGNS {
        for bit in 0..UNITS {
            let map = Map::new(false);
            map.set_bit(Bit::in_row(bit));
            let expected = align <= BITS.ilog2() && bit % (1 << align) == 0;
            assert_eq!(
                map.claim_near(1, align, Bit::in_row(0)).map(Bit::number),
                expected.then_some(bit),
                "{align} {bit}"
            );
            assert_eq!(map.has(Bit::in_row(bit)), !expected);
        }
    }
}

#[test]
fn iterators_return_the_bits_and_runs_of_the_map() {
    for plain in examples() {
        let words = words_of(&plain);
        let set: Vec<usize> = (0..UNITS).filter(|&bit| plain[bit]).collect();
        assert!(bits::set_bits(&words)
            .map(Bit::number)
            .eq(set.iter().copied()));
        assert_eq!(bits::weight(&words), set.len());
        assert_eq!(bits::last_set(&words).map(Bit::number), set.last().copied());
        let mut from_runs = vec![false; UNITS];
        for (first, len) in bits::runs(&words).map(|run| (run.first().number(), run.len())) {
            assert!(first == 0 || !plain[first - 1]);
            assert!(first + len == UNITS || !plain[first + len]);
            from_runs[first..first + len].fill(true);
        }
        assert_eq!(from_runs, plain);
        for other in examples().iter().step_by(7) {
            let both: Vec<bool> = plain.iter().zip(other).map(|(&a, &b)| a && b).collect();
            assert_eq!(bits::and(&words, &words_of(other)), words_of(&both));
        }
    }
}

#[test]
fn the_lowest_run_is_claimed() {
    for plain in examples() {
        for len in [1, 2, 3, 31, 32, 33, 63, 64, 65, 100, 128, 200, 512] {
            for align in 0..=9 {
                let anywhere = lowest(&plain, len, align, |_| true);
                let found = bits::find_run(&words_of(&plain), len, align);
                assert_eq!(found.map(|run| run.first().number()), anywhere);
                // A run within one word comes first.
                let in_word = lowest(&plain, len, align, |first| first % BITS + len <= BITS);
                let in_word = in_word.filter(|_| align <= BITS.ilog2());
                let map = map_of(&plain);
                let claimed = map.claim(len, align, 1, &Atomic::new(0)).map(Bit::number);
                assert_eq!(claimed, in_word.or(anywhere), "{len} {align}");
                let mut rest = plain.clone();
                if let Some(first) = claimed {
                    rest[first..first + len].fill(false);
                }
                assert_eq!(plain_of(&map), rest);
                if let Some(first) = claimed {
                    assert!(!map.claim_at(run(first, len)));
                    map.set(run(first, len));
                }
                assert_eq!(plain_of(&map), plain);
            }
        }
    }
}

#[test]
fn a_claim_of_a_run_that_is_not_all_set_changes_nothing() {
    for plain in examples() {
        for len in [1, 63, 64, 65, 100, 200] {
            for first in (0..=UNITS - len).step_by(37) {
                let all = plain[first..first + len].iter().all(|&set| set);
                let map = map_of(&plain);
                assert_eq!(map.claim_at(run(first, len)), all);
                let mut rest = plain.clone();
                if all {
                    rest[first..first + len].fill(false);
                }
                assert_eq!(plain_of(&map), rest);
            }
        }
    }
}

/// The search starts at the word of the bit and wraps around. In each word, runs at or above the position of
/// the bit come first.
#[test]
fn the_nearest_run_is_claimed() {
    for plain in examples() {
        for (len, align) in [(1, 0), (2, 1), (3, 0), (17, 2), (32, 5), (64, 6)] {
            for near in (0..UNITS).step_by(13) {
                let words = (0..UNITS / BITS).map(|step| (near / BITS + step) % (UNITS / BITS));
                let expected = words.into_iter().find_map(|word| {
                    let fits = |first: usize| first / BITS == word && first % BITS + len <= BITS;
                    let above = |first: usize| fits(first) && first % BITS >= near % BITS;
                    lowest(&plain, len, align, above).or_else(|| lowest(&plain, len, align, fits))
                });
                let claimed = map_of(&plain).claim_near(len, align, Bit::in_row(near));
                assert_eq!(claimed.map(Bit::number), expected);
            }
        }
    }
}

#[test]
fn the_hint_advances_past_words_without_a_run_of_least_bits() {
    for least in [1, 2, 4] {
        let mut plain = vec![false; UNITS];
        // A run of one bit in word 1, of three bits in word 2.
        plain[BITS + 5] = true;
        plain[2 * BITS + 9..2 * BITS + 12].fill(true);
        plain[7 * BITS..].fill(true);
        let hint = Atomic::new(0);
        let claimed = map_of(&plain).claim(8, 0, least, &hint);
        assert_eq!(claimed.map(Bit::number), Some(7 * BITS));
        let expected = match least {
            1 => 1,
            2 => 2,
            _ => 7,
        };
        assert_eq!(hint.load(Relaxed), expected);
    }
}

#[test]
fn words_are_set_and_taken() {
    for plain in examples() {
        let words = words_of(&plain);
        let map = Map::new(false);
        map.set_words(&words);
        assert_eq!(map.words(), words);
        assert_eq!(map.take(), words);
        assert_eq!(map.words(), [0; bits::WORDS]);
        for run in bits::runs(&words) {
            assert_eq!(bits::weight(&bits::run_at(run)), run.len());
            map.set_and_fence(run);
        }
        assert_eq!(map.words(), words);
    }
}
