// SPDX-License-Identifier: GPL-2.0

//! Tests of the checker: right answers are not reported, and each kind of wrong answer is.

use super::*;
use crate::check::{
    checked::{
        CheckedSpace,
        CheckedTlb, //
    },
    checker::Checker,
    record::Identity, //
};

#[kernel::prelude::kunit_tests(vmap_rust_checker)]
mod tests {
    use super::*;

    /// Identities of areas in these tests.
    const ONE: Identity = 0x1000;
    const OTHER: Identity = 0x2000;

    fn pages(first: usize, pages: usize) -> Result<Span> {
        Span::with_size(first * PAGE_SIZE, pages * PAGE_SIZE).ok_or(EINVAL)
    }

    /// Returns the counts: compared, unsettled, wrong.
    fn counts(checker: &Checker) -> (usize, usize, usize) {
        (
            checker.compared.load(Relaxed),
            checker.unsettled.load(Relaxed),
            checker.wrong.load(Relaxed),
        )
    }

    /// Records that an area was allocated, unlinked and retired.
    fn use_and_retire(checker: &Checker, span: Span, identity: Identity) {
        checker.allocated(span, identity, true);
        checker.unlinked(span, identity);
        let began = checker.retiring(span, identity);
        checker.retired(span, identity, began);
    }

    #[test]
    fn correct_answers_are_not_reported() -> Result {
        let checker = Checker::new(false, GFP_KERNEL)?;
        let span = pages(1, 2)?;
        use_and_retire(&checker, span, ONE);
        checker.purge(|| checker.flush(span, || ()));
        let span = pages(2, 4)?;
        use_and_retire(&checker, span, OTHER);
        checker.purge(|| checker.flush(span, || ()));
        checker.allocated(pages(1, 9)?, ONE, true);
        assert_eq!(counts(&checker), (9, 0, 0));
        Ok(())
    }

    #[test]
    fn areas_that_overlap_are_wrong() -> Result {
        for (first, count) in [(4, 1), (3, 2), (5, 9), (1, 20)] {
            let checker = Checker::new(false, GFP_KERNEL)?;
            checker.allocated(pages(4, 3)?, ONE, true);
            checker.allocated(pages(first, count)?, OTHER, true);
            assert_eq!(counts(&checker), (2, 0, 1));
        }
        Ok(())
    }

    #[test]
    fn an_area_that_does_not_fit_the_request_is_wrong() -> Result {
        let checker = Checker::new(false, GFP_KERNEL)?;
        checker.allocated(pages(4, 3)?, ONE, true);
        checker.allocated(pages(7, 3)?, OTHER, false);
        assert_eq!(counts(&checker), (2, 0, 1));
        Ok(())
    }

    #[test]
    fn a_member_that_was_not_given_is_wrong() -> Result {
        let home = pages(64, 64)?;
        let tlb = CheckedTlb {
            tlb: FlushLog::new()?,
            watch: Some(Checker::new(false, GFP_KERNEL)?),
        };
        let space = CheckedSpace::new(home, tlb, Options::default())?;
        let checker = space.checker().ok_or(EINVAL)?;
        let member = |page: usize| Member {
            offset: page * PAGE_SIZE,
            size: PAGE_SIZE,
        };
        let mut first = None;
        let one = [member(0)].into_iter();
        space.alloc_congruent(home, one, PAGE_SIZE, Gfp::KERNEL, |index, area| {
            first = publish(index, area);
            first
        })?;
        let start = first.ok_or(EINVAL)?.span().first();
        assert_eq!(counts(checker), (1, 0, 0));
        let members = [(member(0), None), (member(3), None)];
        CheckedSpace::<FlushLog>::allocated_congruent(
            checker,
            home,
            members.into_iter(),
            PAGE_SIZE,
        );
        assert_eq!(counts(checker), (3, 0, 2));
        let area = space.unlink(start).ok_or(EINVAL)?;
        space.retire(area);
        space.purge(None, true);
        Ok(())
    }

    #[test]
    fn an_area_that_was_unlinked_by_an_address_outside_is_wrong() -> Result {
        for (addr, count) in [(4, 0), (6, 0), (3, 1), (7, 1)] {
            let checker = Checker::new(false, GFP_KERNEL)?;
            checker.allocated(pages(4, 3)?, ONE, true);
            checker.unlinked_at(addr * PAGE_SIZE, Some(pages(4, 3)?), ONE);
            assert_eq!(counts(&checker), (2 + count, 0, count));
        }
        let checker = Checker::new(false, GFP_KERNEL)?;
        checker.unlinked_at(0, None, ONE);
        assert_eq!(counts(&checker), (1, 0, 1));
        Ok(())
    }

    #[test]
    fn reuse_before_a_flush_is_wrong() -> Result {
        let checker = Checker::new(false, GFP_KERNEL)?;
        use_and_retire(&checker, pages(4, 3)?, ONE);
        // A flush of another range, and one of a part of the area.
        checker.flush(pages(1, 3)?, || ());
        checker.flush(pages(4, 2)?, || ());
        checker.allocated(pages(6, 1)?, OTHER, true);
        assert_eq!(counts(&checker), (4, 0, 1));
        Ok(())
    }

    #[test]
    fn areas_freed_during_a_flush_are_not_flushed() -> Result {
        let checker = Checker::new(false, GFP_KERNEL)?;
        let span = pages(4, 3)?;
        checker.flush(span, || use_and_retire(&checker, span, ONE));
        checker.allocated(span, OTHER, true);
        assert_eq!(counts(&checker), (4, 0, 1));
        Ok(())
    }

    #[test]
    fn a_purge_that_leaves_an_area_is_wrong() -> Result {
        let checker = Checker::new(false, GFP_KERNEL)?;
        let later = pages(8, 1)?;
        use_and_retire(&checker, pages(4, 3)?, ONE);
        checker.purge(|| use_and_retire(&checker, later, OTHER));
        assert_eq!(counts(&checker), (7, 0, 1));
        Ok(())
    }

    #[test]
    fn a_purge_may_leave_an_area_whose_retire_has_not_ended() -> Result {
        let checker = Checker::new(false, GFP_KERNEL)?;
        let span = pages(4, 3)?;
        checker.allocated(span, ONE, true);
        checker.unlinked(span, ONE);
        let first = checker.retiring(span, ONE);
        // Flushed, reused, and being retired again before the end of the first retire is recorded.
        checker.flush(span, || ());
        checker.allocated(span, ONE, true);
        checker.unlinked(span, ONE);
        let second = checker.retiring(span, ONE);
        checker.retired(span, ONE, first);
        checker.purge(|| ());
        assert_eq!(counts(&checker), (7, 0, 0));
        checker.retired(span, ONE, second);
        checker.purge(|| ());
        assert_eq!(counts(&checker), (8, 0, 1));
        Ok(())
    }

    #[test]
    fn freeing_twice_or_another_area_is_wrong() -> Result {
        let checker = Checker::new(false, GFP_KERNEL)?;
        let span = pages(4, 3)?;
        checker.allocated(span, ONE, true);
        // Retired while busy, unlinked as another area, with other bounds, and twice.
        checker.retiring(span, ONE);
        checker.unlinked(span, OTHER);
        checker.unlinked(pages(5, 2)?, ONE);
        checker.unlinked(span, ONE);
        checker.unlinked(span, ONE);
        assert_eq!(counts(&checker), (6, 0, 4));
        checker.retiring(span, ONE);
        checker.retiring(span, ONE);
        assert_eq!(counts(&checker), (8, 0, 5));
        Ok(())
    }

    #[test]
    fn answers_that_differ_from_the_record_are_wrong() -> Result {
        let checker = Checker::new(false, GFP_KERNEL)?;
        let addr = pages(5, 1)?.first();
        checker.allocated(pages(4, 3)?, ONE, true);
        for found in [Some(ONE), Some(OTHER), None] {
            checker.found(&checker.moment(), addr, found);
            checker.found_next(&checker.moment(), 0, usize::MAX, found);
        }
        assert_eq!(counts(&checker), (7, 0, 4));
        checker.unlinked(pages(4, 3)?, ONE);
        checker.found(&checker.moment(), addr, None);
        checker.found_next(&checker.moment(), 0, usize::MAX, None);
        assert_eq!(counts(&checker), (10, 0, 4));
        Ok(())
    }

    #[test]
    fn answers_during_a_change_are_not_compared() -> Result {
        let checker = Checker::new(false, GFP_KERNEL)?;
        checker.change(|| checker.found(&checker.moment(), 0, Some(ONE)));
        let moment = checker.moment();
        checker.change(|| ());
        checker.found(&moment, 0, Some(ONE));
        assert_eq!(counts(&checker), (0, 2, 0));
        // An answer within the caller's own change is compared.
        let moment = checker.moment();
        checker.change(|| ());
        checker.found(&moment.and_own_change(), 0, Some(ONE));
        assert_eq!(counts(&checker), (1, 2, 1));
        Ok(())
    }
}
