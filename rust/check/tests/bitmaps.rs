// SPDX-License-Identifier: GPL-2.0

//! Bitmaps compared with a plain set of numbers under random operations.

use super::*;

/// Whether each number is in a set.
type Set = [bool; MAP_BITS];

fn words_of(set: &Set) -> Words {
    let map = Map::new();
    for number in numbers(set) {
        map.set(Bit::in_row(number));
    }
    map.words()
}

/// Returns the numbers in a set, in ascending order.
fn numbers(set: &Set) -> impl DoubleEndedIterator<Item = usize> + '_ {
    (0..MAP_BITS).filter(|&number| set[number])
}

/// Returns the bits of `from` on within their word, and then those of the words behind, the first ones included.
fn near(from: usize) -> impl Iterator<Item = usize> {
    let word = move |step: usize| {
        let first = (from / BITS + step) % WORDS * BITS;
        first..first + BITS
    };
    Iterator::chain(from..word(0).end, (1..=WORDS).flat_map(word))
}

/// A map, and the bits that are set in it.
struct Pair {
    map: Map,
    set: Set,
    random: Random,
}

impl Pair {
    /// Returns some of the bits that are set if `is_set`, and otherwise some that are clear: single ones and runs.
    fn some(&mut self, is_set: bool) -> Set {
        let mut some = [false; MAP_BITS];
        for _ in 0..self.random.below(6) {
            let first = self.random.below(MAP_BITS);
            let len = 1 << self.random.below(8);
            let run = first..MAP_BITS.min(first + len);
            run.for_each(|number| some[number] = self.set[number] == is_set);
        }
        some
    }

    /// Removes numbers from the set.
    fn clear(&mut self, numbers: impl IntoIterator<Item = usize>) {
        numbers
            .into_iter()
            .for_each(|number| self.set[number] = false);
    }

    /// Does one operation on both sides, and compares the results.
    fn step(&mut self) {
        let number = self.random.below(MAP_BITS);
        let bit = Bit::in_row(number);
        let is_set = self.set[number];
        match self.random.below(11) {
            0 => {
                let wanted = numbers(&self.set).next();
                assert_eq!(self.map.claim().map(Bit::number), wanted);
                self.clear(wanted);
            }
            1 | 2 => {
                let wanted = near(number).find(|&number| self.set[number]);
                assert_eq!(self.map.claim_near(bit).map(Bit::number), wanted);
                self.clear(wanted);
            }
            3 if !is_set => {
                self.map.set(bit);
                self.set[number] = true;
            }
            4 if !is_set => {
                self.map.set_and_fence(bit, bit.mask());
                self.set[number] = true;
            }
            5 => {
                self.map.insert(bit);
                self.set[number] = true;
            }
            6 | 7 => {
                let more = self.some(false);
                self.map.set_words(&words_of(&more));
                numbers(&more).for_each(|number| self.set[number] = true);
            }
            8 => {
                // All of the map, or one bit more or less in a word that it has or has not.
                let mut all = self.set;
                all[number] ^= self.random.below(2) == 0;
                let is_there = numbers(&all).all(|number| self.set[number]);
                // Of words of which something is wanted, all that is there must be.
                let words = words_of(&all);
                let is_exact = { words.iter().zip(self.map.words()) }
                    .all(|(&wanted, has)| wanted == 0 || wanted == has);
                assert_eq!(self.map.claim_all(&words), is_exact);
                if is_exact {
                    assert!(is_there);
                    self.clear(numbers(&all));
                }
            }
            9 => {
                assert_eq!(self.map.claim_bit(bit), is_set);
                self.set[number] = false;
            }
            _ => {
                assert_eq!(self.map.take(), words_of(&self.set));
                assert!(self.map.is_clear());
                // All, or all but some.
                let gone = self.some(true);
                match self.random.below(4) {
                    0 => self.set = [false; MAP_BITS],
                    _ => self.clear(numbers(&gone)),
                }
                self.map.set_words(&words_of(&self.set));
            }
        }
    }

    /// Compares what the map says.
    fn compare(&mut self) {
        let (words, set) = (self.map.words(), self.set);
        assert!(map::set_bits(words).map(Bit::number).eq(numbers(&set)));
        assert_eq!(map::weight(&words), numbers(&set).count());
        assert_eq!(self.map.is_clear(), numbers(&set).count() == 0);
        assert_eq!(
            map::last_set(&words).map(Bit::number),
            numbers(&set).next_back()
        );
        let from = self.random.below(MAP_BITS + 1);
        let next = (from..MAP_BITS).find(|&number| set[number]);
        assert_eq!(map::next_set(&words, from).map(Bit::number), next);
        let next = (from..MAP_BITS).find(|&number| !set[number]);
        assert_eq!(self.map.next_clear(from).map(Bit::number), next);
        for (number, &is_set) in set.iter().enumerate() {
            let bit = Bit::in_row(number);
            let found = [self.map.has(bit), map::has(&words, bit)];
            assert_eq!(found, [is_set; 2]);
        }
        // The runs have exactly the bits of the set, and there is a clear bit between two of them.
        let mut left = set;
        let mut end = None;
        for (first, len) in map::runs(&words) {
            let first = first.number();
            assert!(len > 0 && end.is_none_or(|end| first > end));
            assert!(set[first..first + len].iter().all(|&is_set| is_set));
            left[first..first + len].fill(false);
            end = Some(first + len);
        }
        assert_eq!(numbers(&left).count(), 0);
    }
}

#[kernel::prelude::kunit_tests(vmap_rust_map)]
mod tests {
    use super::*;

    #[test]
    fn maps_agree_with_a_plain_set() {
        for seed in 0..10 {
            let mut pair = Pair {
                map: Map::new(),
                set: [false; MAP_BITS],
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
            let set = core::array::from_fn(|number| number < count);
            assert_eq!(map::first(count), words_of(&set));
        }
    }

    /// Numbers that go on from one map to the next, as those of the entries of parts.
    #[test]
    fn a_bit_knows_its_map_word_and_place() {
        for number in Iterator::chain(0..3 * MAP_BITS, [usize::MAX - 1, usize::MAX]) {
            let bit = Bit::in_row(number);
            assert_eq!(bit.number(), number % MAP_BITS);
            assert_eq!(bit.word() * BITS + bit.in_word(), bit.number());
            assert!(bit.word() < WORDS && bit.in_word() < BITS);
        }
    }
}
