// SPDX-License-Identifier: GPL-2.0

//! Compares bitmaps with a plain set of numbers under random operations, which takes too long in an emulated kernel.

use crate::{
    base::prelude::*,
    check::random::Random, //
};
use std::collections::BTreeSet;

/// A map, and the bits that are set in it.
struct Pair {
    map: Map,
    set: BTreeSet<usize>,
    random: Random,
}

fn words_of(set: &BTreeSet<usize>) -> Words {
    let map = Map::new();
    for &number in set {
        map.set(Bit::in_row(number));
    }
    map.words()
}

/// Returns the bits of `from` on within their word, and then those of the words behind, the first ones included.
fn near(from: usize) -> impl Iterator<Item = usize> {
    let word = move |step: usize| {
        let first = (from / BITS + step) % WORDS * BITS;
        first..first + BITS
    };
    (from..word(0).end).chain((1..=WORDS).flat_map(word))
}

impl Pair {
    /// Returns some of the bits that are set if `set`, and otherwise some that are clear: single ones and runs.
    fn some(&mut self, set: bool) -> BTreeSet<usize> {
        let mut some = BTreeSet::new();
        for _ in 0..self.random.below(6) {
            let first = self.random.below(MAP_BITS);
            let len = 1 << self.random.below(8);
            let run = first..MAP_BITS.min(first + len);
            some.extend(run.filter(|number| self.set.contains(number) == set));
        }
        some
    }

    /// Does one operation on both sides, and compares the results.
    fn step(&mut self) {
        let bit = Bit::in_row(self.random.below(MAP_BITS));
        let is_set = self.set.contains(&bit.number());
        match self.random.below(10) {
            0 => assert_eq!(self.map.claim().map(Bit::number), self.set.pop_first()),
            1 | 2 => {
                let wanted = near(bit.number()).find(|number| self.set.contains(number));
                assert_eq!(self.map.claim_near(bit).map(Bit::number), wanted);
                self.set.retain(|&number| Some(number) != wanted);
            }
            3 if !is_set => {
                self.map.set(bit);
                self.set.insert(bit.number());
            }
            4 if !is_set => {
                self.map.set_and_fence(bit);
                self.set.insert(bit.number());
            }
            5 => {
                self.map.insert(bit);
                self.set.insert(bit.number());
            }
            6 | 7 => {
                let more = self.some(false);
                self.map.set_words(&words_of(&more));
                self.set.extend(more);
            }
            8 => {
                // All of the map, or one bit more or less in a word that it has or has not.
                let mut all = self.set.clone();
                if self.random.below(2) == 0 && !all.remove(&bit.number()) {
                    all.insert(bit.number());
                }
                // Words of which nothing is wanted may have bits.
                let is_wanted = |number: &usize| all.iter().any(|bit| bit / BITS == number / BITS);
                let (wanted, others) = self
                    .set
                    .iter()
                    .partition::<BTreeSet<_>, _>(|&n| is_wanted(n));
                let ok = wanted == all;
                assert_eq!(self.map.claim_all(&words_of(&all)), ok);
                if ok {
                    self.set = others;
                }
            }
            _ => {
                assert_eq!(self.map.take(), words_of(&self.set));
                // All, or all but some.
                let gone = self.some(true);
                match self.random.below(4) {
                    0 => self.set.clear(),
                    _ => self.set.retain(|number| !gone.contains(number)),
                }
                self.map.set_words(&words_of(&self.set));
            }
        }
    }

    /// Compares what the map says.
    fn compare(&mut self) {
        let words = self.map.words();
        let set: Vec<usize> = self.set.iter().copied().collect();
        assert!(map::set_bits(&words)
            .map(Bit::number)
            .eq(set.iter().copied()));
        assert_eq!(map::weight(&words), set.len());
        assert_eq!(self.map.is_clear(), set.is_empty());
        assert_eq!(map::last_set(&words).map(Bit::number), set.last().copied());
        let from = self.random.below(MAP_BITS + 1);
        let next = self.set.range(from..).next().copied();
        assert_eq!(map::next_set(&words, from).map(Bit::number), next);
        for number in 0..MAP_BITS {
            let bit = Bit::in_row(number);
            assert_eq!(self.map.has(bit), self.set.contains(&number));
        }
        // The runs have exactly the bits of the set, and there is a clear bit between two of them.
        let mut left = self.set.clone();
        let mut end = None;
        for (first, len) in map::runs(&words) {
            let first = first.number();
            assert!(len > 0 && end.is_none_or(|end| first > end));
            assert!((first..first + len).all(|number| left.remove(&number)));
            end = Some(first + len);
        }
        assert!(left.is_empty());
    }
}

#[test]
fn maps_agree_with_a_plain_set() {
    for seed in 0..40 {
        let mut pair = Pair {
            map: Map::new(),
            set: BTreeSet::new(),
            random: Random::new(seed),
        };
        for _ in 0..400 {
            pair.step();
            pair.compare();
        }
    }
}

#[test]
fn the_first_bits_are_those_below_a_count() {
    for count in 0..=MAP_BITS {
        assert_eq!(map::first(count), words_of(&(0..count).collect()));
    }
}

/// Numbers that go on from one map to the next, as those of the entries of parts.
#[test]
fn a_bit_knows_its_map_word_and_place() {
    for number in (0..3 * MAP_BITS).chain([usize::MAX - 1, usize::MAX]) {
        let bit = Bit::in_row(number);
        assert_eq!(bit.number(), number % MAP_BITS);
        assert_eq!(bit.word() * BITS + bit.in_word(), bit.number());
        assert!(bit.word() < WORDS && bit.in_word() < BITS);
    }
}
