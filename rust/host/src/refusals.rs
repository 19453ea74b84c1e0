// SPDX-License-Identifier: GPL-2.0

//! Misuses of the types of [`crate::state`] that the compiler must refuse, for the reason that is given. Each of
//! them has a twin before it that compiles and differs only in the misuse.
//!
//! `cargo test` compiles each example as a crate of its own with the layers up to `state`.

/// A lazy range does not go to its next user.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn keep(area: Area<Flushed>) -> Area<Cached> {
///     area.cached()
/// }
/// ```
///
/// ```compile_fail,E0599
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn keep(area: Area<Lazy>) -> Area<Cached> {
///     area.cached()
/// }
/// ```
mod lazy_range_is_cached {}

/// A lazy range does not go back to the index.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn free(table: &mut TableGuard<'_>, area: Area<Flushed>) -> bool {
///     table.give_back(area).is_ok()
/// }
/// ```
///
/// ```compile_fail,E0277
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn free(table: &mut TableGuard<'_>, area: Area<Lazy>) -> bool {
///     table.give_back(area).is_ok()
/// }
/// ```
mod lazy_range_is_freed {}

/// A plan that was not flushed gives out nothing.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn take(plan: Plan, tlb: &impl Tlb) -> AreaList<Flushed> {
///     plan.flush(tlb).take_list(0)
/// }
/// ```
///
/// ```compile_fail,E0599
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn take(plan: Plan, tlb: &impl Tlb) -> AreaList<Flushed> {
///     plan.take_list(0)
/// }
/// ```
mod list_without_a_flush {}

/// A list that is not part of a plan stays lazy when the plan is flushed.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn take(list: AreaList<Lazy>, flushed: &mut FlushedPlan) -> AreaList<Flushed> {
///     flushed.take_list(0)
/// }
/// ```
///
/// ```compile_fail,E0624
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn take(list: AreaList<Lazy>, flushed: &mut FlushedPlan) -> AreaList<Flushed> {
///     list.flushed(flushed)
/// }
/// ```
mod list_of_no_plan {}

/// Nothing is added to a plan after its flush.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn flush(mut plan: Plan, list: LazyList, tlb: &impl Tlb) -> FlushedPlan {
///     plan.add_list(0, list);
///     let flushed = plan.flush(tlb);
///     flushed
/// }
/// ```
///
/// ```compile_fail,E0382
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn flush(mut plan: Plan, list: LazyList, tlb: &impl Tlb) -> FlushedPlan {
///     let flushed = plan.flush(tlb);
///     plan.add_list(0, list);
///     flushed
/// }
/// ```
mod list_after_the_flush {}

/// A list without the range to flush for it is not added.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn add(plan: &mut Plan, list: LazyList) {
///     plan.add_list(0, list);
/// }
/// ```
///
/// ```compile_fail,E0308
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn add(plan: &mut Plan, list: AreaList<Lazy>) {
///     plan.add_list(0, list);
/// }
/// ```
mod list_without_a_range {}

/// The pages of a plan that was not flushed do not become free.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn free(block: &Block, pages: &Pages<Flushed>) {
///     block.free_flushed(pages);
/// }
/// ```
///
/// ```compile_fail,E0308
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn free(block: &Block, pages: &Pages<Lazy>) {
///     block.free_flushed(pages);
/// }
/// ```
mod pages_without_a_flush {}

/// Pages that are not part of a plan stay lazy when the plan is flushed.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn take(pages: Pages<Lazy>, flushed: &mut FlushedPlan) -> Option<Pages<Flushed>> {
///     flushed.take_pages()
/// }
/// ```
///
/// ```compile_fail,E0624
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn take(pages: Pages<Lazy>, flushed: &mut FlushedPlan) -> Option<Pages<Flushed>> {
///     Some(pages.flushed())
/// }
/// ```
mod pages_of_no_plan {}

/// A flush for no pages frees none.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn free(block: &Block, tlb: &impl Tlb) {
///     if let Some(pages) = Plan::new().flush(tlb).take_pages() {
///         block.free_flushed(&pages);
///     }
/// }
/// ```
///
/// ```compile_fail,E0308
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn free(block: &Block, tlb: &impl Tlb) {
///     let pages = Plan::new().flush(tlb).take_pages();
///     block.free_flushed(&pages);
/// }
/// ```
mod flush_of_nothing {}

/// A flush is for the pages that were taken before it, and not for those that are taken later.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn free(block: &Block, pages: Pages<Flushed>) {
///     block.free_flushed(&pages);
///     pages.freed();
/// }
/// ```
///
/// ```compile_fail,E0382
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn free(block: &Block, pages: Pages<Flushed>) {
///     pages.freed();
///     block.free_flushed(&pages);
/// }
/// ```
mod flush_that_is_used_up {}

/// An area is not called never mapped without a proof.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn release(area: Area<Unlinked>, proof: NeverMapped) -> Area<Flushed> {
///     area.never_mapped(proof)
/// }
/// ```
///
/// ```compile_fail,E0061
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn release(area: Area<Unlinked>, proof: NeverMapped) -> Area<Flushed> {
///     area.never_mapped()
/// }
/// ```
mod area_that_may_be_mapped {}

/// The proof that one area was never mapped says nothing about another one.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn release(areas: [Area<Unlinked>; 2], proofs: [NeverMapped; 2]) -> [Area<Flushed>; 2] {
///     let ([one, other], [proof, another]) = (areas, proofs);
///     [one.never_mapped(proof), other.never_mapped(another)]
/// }
/// ```
///
/// ```compile_fail,E0382
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn release(areas: [Area<Unlinked>; 2], proofs: [NeverMapped; 2]) -> [Area<Flushed>; 2] {
///     let ([one, other], [proof, another]) = (areas, proofs);
///     [one.never_mapped(proof), other.never_mapped(proof)]
/// }
/// ```
mod proof_of_another_area {}

/// Only unsafe code can say that an area was never mapped: its author answers for it.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn promise() -> NeverMapped {
///     unsafe { NeverMapped::promised() }
/// }
/// ```
///
/// ```compile_fail,E0133
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn promise() -> NeverMapped {
///     NeverMapped::promised()
/// }
/// ```
mod promise_without_unsafe {}

/// What there is for each band is not found with a number.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn find(counts: &ByBand<usize>, band: Band) -> &usize {
///     counts.of(band)
/// }
/// ```
///
/// ```compile_fail,E0308
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn find(counts: &ByBand<usize>, units: usize) -> &usize {
///     counts.of(units)
/// }
/// ```
mod number_for_a_band {}

/// A number that may be too large is no band before it was checked.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn find(counts: &ByBand<usize>, number: usize) -> Option<&usize> {
///     Some(counts.of(Band::new(number)?))
/// }
/// ```
///
/// ```compile_fail,E0308
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn find(counts: &ByBand<usize>, number: usize) -> Option<&usize> {
///     Some(counts.of(Band::new(number)))
/// }
/// ```
mod band_without_a_check {}

/// A unit is not a band.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn find(counts: &ByBand<usize>, band: Band) -> &usize {
///     counts.of(band)
/// }
/// ```
///
/// ```compile_fail,E0308
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn find(counts: &ByBand<usize>, unit: Bit) -> &usize {
///     counts.of(unit)
/// }
/// ```
mod unit_for_a_band {}

/// A number of pages is not a unit.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn is_free(free: &Map, unit: Bit) -> bool {
///     free.has(unit)
/// }
/// ```
///
/// ```compile_fail,E0308
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn is_free(free: &Map, pages: usize) -> bool {
///     free.has(pages)
/// }
/// ```
mod pages_for_a_unit {}

/// A run that may leave its block is none before it was checked.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn claim(free: &Map, first: Bit, units: usize) -> bool {
///     Run::new(first, units).is_some_and(|run| free.claim_at(run))
/// }
/// ```
///
/// ```compile_fail,E0308
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn claim(free: &Map, first: Bit, units: usize) -> bool {
///     free.claim_at(Run::new(first, units))
/// }
/// ```
mod run_without_a_check {}

/// A unit is not the number of a block.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn find<'a>(dir: &'a Directory, number: BlockNumber, rcu: &'a Guard) -> Option<&'a Block> {
///     dir.block(number, rcu)
/// }
/// ```
///
/// ```compile_fail,E0308
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn find<'a>(dir: &'a Directory, unit: Bit, rcu: &'a Guard) -> Option<&'a Block> {
///     dir.block(unit, rcu)
/// }
/// ```
mod unit_for_a_block {}

/// Only the directory makes numbers of blocks.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn note(hint: &BlockHint, dir: &Directory, addr: usize) {
///     hint.set(dir.number_at(addr));
/// }
/// ```
///
/// ```compile_fail,E0308
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn note(hint: &BlockHint, dir: &Directory, addr: usize) {
///     hint.set(Some(addr));
/// }
/// ```
mod address_for_a_block {}

/// An epoch is not a CPU.
///
/// ```no_run
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn note(block: &Block, cpu: CpuNumber, epoch: usize) {
///     block.set_owner(cpu, epoch);
/// }
/// ```
///
/// ```compile_fail,E0308
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/layers.rs"));
/// # fn main() {}
/// fn note(block: &Block, cpu: CpuNumber, epoch: usize) {
///     block.set_owner(epoch, cpu);
/// }
/// ```
mod epoch_for_a_cpu {}
