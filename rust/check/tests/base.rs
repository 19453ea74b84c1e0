// SPDX-License-Identifier: GPL-2.0

//! Spans and alignment. A module of `base`, whose private items it uses.

#[kernel::prelude::kunit_tests(vmap_rust_range)]
mod range {
    use crate::base::prelude::*;

    const TOP: usize = usize::MAX;

    #[test]
    fn span_is_never_empty() {
        assert!(Span::new(2, 1).is_none());
        assert!(Span::from_bounds(0, 0).is_none());
        assert!(Span::from_bounds(5, 5).is_none());
        assert!(Span::with_size(7, 0).is_none());
        assert!(Span::with_size(TOP, 2).is_none());
        assert_eq!(Span::with_size(TOP, 1).map(Span::end), Some(0));
        assert_eq!(Span::new(0, TOP).map(Span::size), Some(TOP));
        assert_eq!(Span::from_bounds(8, 12), Span::with_size(8, 4));
    }

    #[test]
    fn span_room_cover_clip_join() {
        let of = |first, last| Span::new(first, last);
        let Some(whole) = of(10, 19) else {
            assert!(false);
            return;
        };
        assert!(whole.has_room(10));
        assert!(!whole.has_room(11));
        assert_eq!(of(0, 12).and_then(|s| s.clip(whole)), of(10, 12));
        assert_eq!(of(20, 30).and_then(|s| s.clip(whole)), None);
        assert_eq!(of(15, 30).and_then(|s| s.clip(whole)), of(15, 19));
        assert_eq!(of(25, 30).map(|s| s.join(whole)), of(10, 30));
        assert!(of(10, 19).is_some_and(|s| whole.covers(s)));
        assert!(!of(9, 19).is_some_and(|s| whole.covers(s)));
    }

    #[test]
    fn alignment_at_both_ends() {
        assert_eq!(align_up(1, 4096), Some(4096));
        assert_eq!(align_up(4096, 4096), Some(4096));
        assert_eq!(align_up(0, 1 << (usize::BITS - 1)), Some(0));
        assert_eq!(
            align_up(1, 1 << (usize::BITS - 1)),
            Some(1 << (usize::BITS - 1))
        );
        assert_eq!(align_up(TOP, 4096), None);
        assert_eq!(align_up(TOP, 1), Some(TOP));
        assert_eq!(align_down(TOP, 4096), TOP - 4095);
        assert!(is_aligned(0, 1 << (usize::BITS - 1)));
        assert!(!is_aligned(4097, 4096));
    }
}
