// SPDX-License-Identifier: GPL-2.0

//! Misuses of the types of [`crate::state`] that the compiler must refuse, for the reason that is given. Each of
//! them has a twin that compiles and differs only in the misuse.
//!
//! `cargo test` compiles each example as a crate of its own with the layers up to `state`.

/// Makes two examples of a function: one with `$right`, which compiles, and one with `$wrong`, which must not. Both have
/// `$before` before and `$after` behind them.
macro_rules! refuse {
    ($($name:ident: $why:literal, $code:ident, $before:literal, $right:literal => $wrong:literal, $after:literal;)*) => {$(
        #[doc = $why]
        #[doc = refuse!(@ "no_run", $before, $right, $after)]
        #[doc = refuse!(@ concat!("compile_fail,", stringify!($code)), $before, $wrong, $after)]
        mod $name {}
    )*};
    (@ $kind:expr, $before:literal, $body:literal, $after:literal) => {
        concat!(
            "\n\n```", $kind, "\n",
            "# include!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/src/layers.rs\"));\n# fn main() {}\n",
            $before, $body, $after, "\n```\n",
        )
    };
}

refuse! {
    lazy_range_is_freed: "A lazy range does not go back to the index.", E0308,
        "fn free(index: &mut IndexGuard<'_>, area: Area<", "Flushed" => "Lazy", ">) -> bool {
            index.give_back(area).is_ok()
        }";
    list_without_a_flush: "A plan that was not flushed gives out nothing.", E0599,
        "fn take(plan: Plan<'_, impl Tlb>) -> AreaList<Flushed> {
            plan", ".flush()" => "", ".take_list()
        }";
    tlb_that_does_nothing: "Only unsafe code says that a TLB is flushed.", E0200,
        "struct Nothing;
        // SAFETY: Nobody uses it.
        ", "unsafe impl" => "impl", " Tlb for Nothing {
            fn flush(&self, _: Span, _: usize) -> usize { 0 }
            fn has_shadow(&self) -> bool { false }
            unsafe fn release_shadow(&self, _: Span) {}
            fn flush_shadow(&self, _: Span) {}
        }";
    shadow_of_a_range_in_use: "Only unsafe code says that nobody uses a range whose KASAN shadow is released.", E0133,
        "fn release(tlb: &impl Tlb, span: Span) {
            // SAFETY: Nobody calls this.
            ", "unsafe { tlb.release_shadow(span) }" => "tlb.release_shadow(span)", "
        }";
    list_after_the_flush: "Nothing is added to a plan after its flush.", E0382,
        "fn flush<T: Tlb>(mut plan: Plan<'_, T>, list: LazyList) -> FlushedPlan<'_, T> {
            ", "plan.add_list(list); let flushed = plan.flush();"
            => "let flushed = plan.flush(); plan.add_list(list);", "
            flushed
        }";
    blocks_of_another_directory: "A plan does not outlive the directory whose blocks it has.", E0505,
        "fn flush(dir: Directory, tlb: &impl Tlb) {
            let plan = Plan::new(&dir, tlb);
            ", "plan.flush().free_slots(|_, _| ()); drop(dir)"
            => "drop(dir); plan.flush().free_slots(|_, _| ())", ";
        }";
    shadow_of_another_tlb: "A purge releases the KASAN shadow with the TLB that it has flushed.", E0061,
        "fn release<T: Tlb>(mut plan: FlushedPlan<'_, T>, other: &T) {
            plan.release_shadow(", "" => "other", ")
        }";
    area_of_any_pointer: "Only unsafe code makes an area object of a pointer.", E0133,
        "fn wrap(raw: *mut bindings::vmap_area) -> Option<AreaPtr> {
            // SAFETY: Nobody calls this.
            ", "unsafe { AreaPtr::new(raw) }" => "AreaPtr::new(raw)", "
        }";
    object_that_may_be_freed: "Only unsafe code reads an area object by its pointer.", E0133,
        "fn read(area: AreaPtr) -> Option<Busy> {
            // SAFETY: Nobody calls this.
            ", "unsafe { area.look() }" => "area.look()", "
        }";
    vm_struct_that_others_use: "Only unsafe code says that a `vm_struct` is the area's.", E0133,
        "fn of(vm: *mut bindings::vm_struct) -> Attributes {
            // SAFETY: Nobody calls this.
            ", "unsafe { Attributes::new(0, vm) }" => "Attributes::new(0, vm)", "
        }";
    slot_that_was_reused: "A slot is used once.", E0382,
        "fn reuse(slot: Claimed<'_>, new: VmFields) -> Option<Busy> {
            slot.reuse(new)", "" => ".or(slot.reuse(new))", "
        }";
    area_that_others_read: "An area that is leaving, which readers may have pinned, is in no list: lists write its fields.", E0277,
        "fn push(list: &mut AreaList<", "Lazy" => "Leaving", ">) -> usize {
            list.len()
        }";
    area_that_readers_have_pinned: "An area is not unlinked without a wait for its readers.", E0624,
        "fn unlink(block: &Found<'_, '_>, found: Busy) -> bool {
            // SAFETY: Nobody calls this.
            ", "block.unlink(found.span().first())" => "unsafe { found.leave() }", ".is_some()
        }";
    pins_of_no_area: "There are no pins but those of a directory and of an index, which pin and unlink its areas.", E0624,
        "fn make(home: Span) -> bool {
            ", "Directory::new(home)" => "Pins::new()", ".is_ok()
        }";
    pinned_area_of_any_pin: "An area is pinned only with the pins of its directory or index.", E0624,
        "fn pin<'a>(block: &Found<'a, '_>, pins: &'a Pins, found: Busy) -> bool {
            // SAFETY: Nobody calls this.
            ", "block.pin_at(found.span().first(), false)" => "unsafe { pins.pin(found, false) }", ".is_some()
        }";
    area_of_another_directory: "An area returns to the directory that it came from, which lives as long.", E0505,
        "fn retire(dir: Directory, addr: usize) -> bool {
            let rcu = Guard::new();
            let area = dir.find(addr, &rcu).and_then(|block| block.unlink(addr));
            drop(rcu);
            ", "area.is_some_and(|area| area.retire().is_ok())" => "drop(dir); area.is_some_and(|area| area.retire().is_ok())", "
        }";
    attributes_of_two_areas: "The attributes of a request are given to one area.", E0382,
        "fn occupy(slots: [Claimed<'_>; 2], attributes: [Attributes; 2]) -> [Option<Busy>; 2] {
            let ([one, other], [first, second]) = (slots, attributes);
            [one.occupy(first), other.occupy(", "second" => "first", ")]
        }";
    slot_without_its_block: "A claimed slot is used while the RCU read lock keeps its block.", E0505,
        "fn alloc(dir: &Directory, number: BlockNumber) -> Option<Busy> {
            let rcu = Guard::new();
            let slot = dir.block(number, &rcu)?.claim(PAGE_SIZE)?;
            ", "let area = slot.occupy(Attributes::NONE); drop(rcu);" => "drop(rcu); let area = slot.occupy(Attributes::NONE);", "
            area
        }";
    copied_attributes: "The attributes of a request are not copied.", E0599,
        "fn keep(attributes: Attributes) -> Attributes {
            attributes", "" => ".clone()", "
        }";
    block_that_is_opened_twice: "Only the directory opens a block: all slots become free.", E0624,
        "fn open(dir: &Directory, block: Placed) -> bool {
            ", "dir.insert(block).is_ok()" => "block.open(); true", "
        }";
    range_of_a_block_in_use: "The range of a block is freed only after it was removed.", E0308,
        "fn free(run: &mut Run, dir: &Directory, number: BlockNumber, rcu: &Guard) -> bool {
            dir.", "remove(number)" => "block(number, rcu)", ".is_some_and(|block| run.try_add(block).is_ok())
        }";
    block_without_a_range: "Only a block whose range is reserved is inserted.", E0308,
        "fn insert(dir: &Directory, block: ", "Placed" => "Unpublished<Block>", ") -> bool {
            dir.insert(block).is_ok()
        }";
    shadow_of_a_block_in_use: "The KASAN shadow of a block is released only after it was removed.", E0308,
        "fn release(block: &", "Placed" => "Block", ", tlb: &impl Tlb) {
            release_shadow(block, tlb)
        }";
    slot_that_is_retired_alone: "A slot becomes lazy only with its area, and the block dirty with it.", E0616,
        "fn free(block: &Block, area: UnlinkedArea<'_>, slot: Bit) -> bool {
            ", "area.retire().is_ok()" => "block.lazy.set_and_fence(slot, 1); true", "
        }";
    block_for_any_area: "An area is not made lazy in a directory that a caller chooses.", E0624,
        "fn free(dir: &Directory, area: UnlinkedArea<'_>, other: Area<Unlinked>) -> bool {
            // SAFETY: Nobody calls this.
            ", "area.retire().is_ok()" => "unsafe { dir.retire(other).is_some() }", "
        }";
    number_for_a_class: "What there is for each class is not found with a number.", E0308,
        "fn find(counts: &ByClass<usize>, number: ", "Class" => "usize", ") -> &usize {
            counts.of(number)
        }";
    pages_for_a_slot: "A number of pages is not a slot.", E0308,
        "fn is_free(free: &Map, slot: ", "Bit" => "usize", ") -> bool {
            free.has(slot)
        }";
    address_for_a_block: "An address is the number of a block only if one can start there.", E0308,
        "fn note(hint: &BlockHint, addr: usize) {
            hint.set(", "BlockNumber::at(addr)" => "Some(addr)", ");
        }";
    block_without_its_readers: "A block that was found is not used after the RCU read lock is released.", E0505,
        "fn read(dir: &Directory, number: BlockNumber) -> Option<usize> {
            let rcu = Guard::new();
            let block = dir.block(number, &rcu)?;
            ", "let start = block.start(); drop(rcu);" => "drop(rcu); let start = block.start();", "
            Some(start)
        }";
}
