// SPDX-License-Identifier: GPL-2.0

//! KUnit cases of bitmaps: searches are compared with searches bit by bit, and claims must leave other bits
//! alone.

#[kernel::prelude::kunit_tests(vmap_rust_bits)]
mod tests {
    use crate::base::{
        bits::{
            and,
            find_run,
            has,
            last_set,
            next_set,
            or,
            run_at,
            run_in_word,
            runs,
            set_bits,
            weight,
            Bit,
            Run,
            Words,
            BITS,
            UNITS,
            WORDS, //
        },
        map::Map, //
    };
    use kernel::sync::atomic::Atomic;

    /// Finds the lowest run bit by bit, to compare `claim()` with.
    fn expected(words: &Words, len: usize, align: u32) -> Option<usize> {
        let set = |bit: usize| words.get(bit / BITS).copied().unwrap_or(0) >> (bit % BITS) & 1 == 1;
        (0..=UNITS - len)
            .step_by(1 << align)
            .find(|&first| (first..first + len).all(set))
    }

    /// Returns the run of `len` bits from bit `first` on, which is in a map.
    fn run(first: usize, len: usize) -> Run {
        let run = Run::new(Bit::in_row(first), len);
        assert!(first < UNITS && run.is_some());
        run.unwrap_or(Run::ALL)
    }

    /// [`Map::claim_near`], for numbers of bits.
    fn near(map: &Map, len: usize, align: u32, near: usize) -> Option<usize> {
        let first = map.claim_near(len, align, Bit::in_row(near));
        first.map(Bit::number)
    }

    #[test]
    fn bits_and_runs_are_in_a_map() {
        assert!(Bit::all().map(Bit::number).eq(0..UNITS));
        assert_eq!(Bit::new(UNITS - 1).map(Bit::number), Some(UNITS - 1));
        assert_eq!(Bit::new(UNITS), None);
        assert_eq!(Bit::in_row(2 * UNITS + 3), Bit::in_row(3));
        let last = Bit::in_row(UNITS - 1);
        assert_eq!(
            Run::new(last, 1).map(|run| (run.first(), run.len())),
            Some((last, 1))
        );
        assert_eq!(Run::new(last, 2), None);
        assert_eq!(Run::new(last, usize::MAX), None);
        assert_eq!(Run::new(Bit::in_row(0), UNITS), Some(Run::ALL));
        assert_eq!(Run::new(Bit::in_row(0), UNITS + 1), None);
    }

    #[test]
    fn claims_near_a_bit_are_free_and_aligned_and_find_every_run() {
        for (len, align) in [(1, 0), (2, 0), (3, 1), (8, 3), (31, 0), (BITS, 5)] {
            let map = Map::new(true);
            let mut random = crate::check::random::Random::new(7);
            let mut places = [0_usize; 2];
            let mut claimed = 0;
            while let Some(first) = near(&map, len, align, random.below(UNITS)) {
                assert!(first % (1 << align) == 0 && first % BITS + len <= BITS);
                if let Some(place) = places.get_mut(usize::from(first >= UNITS / 2)) {
                    *place += 1;
                }
                claimed += len;
            }
            assert_eq!(weight(&map.words()), UNITS - claimed);
            assert!(map
                .words()
                .iter()
                .all(|&word| run_in_word(word, len, align).is_none()));
            assert!(places.iter().all(|&place| place > 0));
        }
        assert_eq!(near(&Map::new(true), 1, 0, 100), Some(100));
        assert_eq!(near(&Map::new(true), BITS + 1, 0, 0), None);
    }

    #[test]
    fn runs_of_every_size_and_alignment_are_found() {
        let mut random = crate::check::random::Random::new(1);
        for round in 0..200 {
            // Densities from almost all clear to almost all set.
            let words: Words = core::array::from_fn(|_| {
                let mut word = usize::MAX;
                for _ in 0..round % 4 {
                    // CAST: A 32-bit word keeps the lower half.
                    word &= random.next() as usize;
                }
                if random.below(3) == 0 {
                    usize::MAX
                } else {
                    word
                }
            });
            for len in [1, 2, 3, 5, 8, 31, 32, 33, 63, 64, 65, 100, 128, 512] {
                for align in 0..=9 {
                    let found = find_run(&words, len, align);
                    assert_eq!(
                        found.map(|run| run.first().number()),
                        expected(&words, len, align)
                    );
                    assert!(found.is_none_or(|run| run.len() == len));
                    let map = Map::new(false);
                    map.store(&words);
                    let first = map.claim(len, align, 2, &Atomic::new(random.below(WORDS)));
                    // Perhaps not the lowest run, but it finds one if one exists.
                    assert_eq!(first.is_some(), expected(&words, len, align).is_some());
                    let Some(first) = first else {
                        assert_eq!(map.words(), words);
                        continue;
                    };
                    // The run is aligned, and no other bit was claimed.
                    assert_eq!(first.number() % (1 << align), 0);
                    assert_eq!(weight(&map.words()) + len, weight(&words));
                    let run = Run::new(first, len);
                    assert!(run.is_some());
                    map.set(run.unwrap_or(Run::ALL));
                    assert_eq!(map.words(), words);
                }
            }
        }
    }

    #[test]
    fn claims_and_frees_leave_neighbouring_bits_alone() {
        let map = Map::new(true);
        assert!(map.claim_at(run(60, 10)));
        assert!(!map.claim_at(run(50, 11)));
        assert!(!map.claim_at(run(69, 100)));
        assert_eq!(weight(&map.words()), UNITS - 10);
        assert!(map.claim_at(run(0, 60)));
        assert!(map.claim_at(run(70, UNITS - 70)));
        assert_eq!(weight(&map.words()), 0);
        map.set(run(60, 10));
        assert_eq!(runs(&map.words()).next(), Some(run(60, 10)));
        assert_eq!(map.words(), run_at(run(60, 10)));
        assert_eq!(last_set(&map.words()), Some(Bit::in_row(69)));
        assert_eq!(last_set(&[0; WORDS]), None);
        assert_eq!(set_bits(&map.words()).count(), 10);
        assert_eq!(and(&map.words(), &run_at(run(65, 100))), run_at(run(65, 5)));
        assert_eq!(or(&run_at(run(60, 5)), &run_at(run(62, 8))), map.words());
        assert_eq!(next_set(&map.words(), 65), Some(Bit::in_row(65)));
        assert_eq!(next_set(&map.words(), 70), None);
        let taken = map.take();
        assert_eq!(weight(&taken), 10);
        assert_eq!(weight(&map.words()), 0);
        map.set_words(&taken);
        assert_eq!(map.words(), taken);
        assert!(has(&taken, Bit::in_row(60)) && !has(&taken, Bit::in_row(59)));
    }
}
