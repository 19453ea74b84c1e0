// SPDX-License-Identifier: GPL-2.0

//! Compares all blocks of a space, and the order in which CPUs use them, with plain lists. The model says at which address
//! each area is, so a block that is in no list, in two, or in a wrong one is noticed.

use crate::{listings::read_all, prelude::*};
use std::collections::{BTreeMap, HashMap};

/// Partial blocks of a class that a CPU has in the pool.
const MOST_OWNED: usize = 16;

/// Pages of areas: two classes of a CPU, two that groups of 8 CPUs share, one of which has larger blocks.
const SIZES: [usize; 4] = [8, 10, 32, 128];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Current,
    Full,
    Owned,
    Orphan,
    Empty,
}

#[derive(Clone, Copy, PartialEq)]
enum Slot {
    Free,
    Used,
    Lazy,
}

struct Block {
    class: Class,
    slots: Vec<Slot>,
    place: Place,
    owner: usize,
}

impl Block {
    fn count(&self, state: Slot) -> usize {
        self.slots.iter().filter(|&&slot| slot == state).count()
    }
}

/// What a class has counted since the last purge, and keeps.
#[derive(Clone, Copy)]
struct Demand {
    taken: usize,
    purged: usize,
    keep: usize,
}

/// The blocks of a space.
struct Model {
    blocks: BTreeMap<usize, Block>,
    /// The lists of the pool, each with its first block last. Only owned blocks have one for each CPU.
    lists: HashMap<(Place, usize, usize), Vec<usize>>,
    demand: BTreeMap<usize, Demand>,
    limit: usize,
    /// Each `1 << shift` CPUs share their blocks: of small classes, and of shared ones.
    shifts: [u32; 2],
}

impl Model {
    fn group(&self, class: Class, cpu: usize) -> usize {
        let shift = self.shifts[usize::from(class.is_shared())];
        cpu >> shift << shift
    }

    fn list(&mut self, place: Place, class: Class, owner: usize) -> &mut Vec<usize> {
        let owner = if place == Place::Owned { owner } else { 0 };
        self.lists
            .entry((place, class.number(), owner))
            .or_default()
    }

    fn move_to(&mut self, start: usize, place: Place) {
        let block = self.blocks.get_mut(&start).expect("a block");
        let (before, class, owner) = (block.place, block.class, block.owner);
        block.place = place;
        self.list(before, class, owner)
            .retain(|&other| other != start);
        self.list(place, class, owner).push(start);
    }

    /// Moves a block of the pool to the list that fits.
    fn update(&mut self, start: usize) {
        let block = &self.blocks[&start];
        let (class, owner) = (block.class, block.owner);
        let (place, free) = (block.place, block.count(Slot::Free));
        let place = match place {
            Place::Current => return,
            _ if free == class.slots() => Place::Empty,
            Place::Full if free > 0 && self.list(Place::Owned, class, owner).len() < MOST_OWNED => {
                Place::Owned
            }
            Place::Full if free > 0 => Place::Orphan,
            place => place,
        };
        if place != self.blocks[&start].place {
            self.move_to(start, place);
        }
    }

    fn current(&self, class: Class, group: usize) -> Option<usize> {
        let mut blocks = self.blocks.iter();
        let found = blocks.find(|(_, block)| {
            (block.place, block.class, block.owner) == (Place::Current, class, group)
        });
        found.map(|(&start, _)| start)
    }

    /// Puts a current block into the pool.
    fn put(&mut self, start: usize) {
        self.move_to(start, Place::Full);
        self.update(start);
    }

    /// Makes a block the current one of a group.
    fn seat(&mut self, start: usize, group: usize) {
        let class = self.blocks[&start].class;
        let before = self.current(class, group);
        self.move_to(start, Place::Current);
        self.blocks.get_mut(&start).expect("a block").owner = group;
        if let Some(before) = before {
            self.put(before);
        }
        self.demand.get_mut(&class.number()).expect("a class").taken += 1;
    }

    /// Returns where the next area of `class` is. [`Err`] if it is not in one of these blocks; with the bytes of a new one
    /// if that is allowed.
    fn alloc(&mut self, class: Class, cpu: usize) -> Result<usize, Option<usize>> {
        let group = self.group(class, cpu);
        let current = self.current(class, group);
        if current.is_none_or(|start| self.blocks[&start].count(Slot::Free) == 0) {
            let lists = [Place::Owned, Place::Orphan, Place::Empty];
            let next = lists.map(|place| self.list(place, class, group).last().copied());
            match next.into_iter().flatten().next() {
                Some(next) => self.seat(next, group),
                None => {
                    let size = class.block_size();
                    let bytes = self.blocks.values().map(|block| block.class.block_size());
                    let left = self.limit - bytes.sum::<usize>();
                    // A large block leaves room for small ones.
                    let needed = if size == SIZE { size } else { 4 * size };
                    return Err((needed <= left).then_some(size));
                }
            }
        }
        let start = self.current(class, group).expect("it was just seated");
        let block = self.blocks.get_mut(&start).expect("a block");
        let mut slots = block.slots.iter();
        let slot = slots.position(|&slot| slot == Slot::Free).expect("room");
        block.slots[slot] = Slot::Used;
        Ok(start + slot * class.slot_pages() * PAGE_SIZE)
    }

    /// Adds a new block that the CPU allocates from.
    fn add(&mut self, start: usize, class: Class, cpu: usize) {
        let group = self.group(class, cpu);
        let mut slots = vec![Slot::Free; class.slots()];
        slots[0] = Slot::Used;
        let block = Block {
            class,
            slots,
            place: Place::Full,
            owner: group,
        };
        let above = self.blocks.range(..start + class.block_size()).next_back();
        assert!(above.is_none_or(|(&other, block)| other + block.class.block_size() <= start));
        self.blocks.insert(start, block);
        self.seat(start, group);
    }

    /// Returns the block and the slot at `addr`.
    fn slot(&mut self, addr: usize) -> Option<(usize, &mut Slot)> {
        let (&start, block) = self.blocks.range_mut(..=addr).next_back()?;
        let slot = (addr - start) / (block.class.slot_pages() * PAGE_SIZE);
        Some((start, block.slots.get_mut(slot)?))
    }

    fn return_current(&mut self, cpus: usize) {
        for cpu in 0..cpus {
            for class in Class::all() {
                if let Some(start) = self.current(class, cpu) {
                    self.put(start);
                }
            }
        }
    }

    /// Frees the lazy slots. Returns their number.
    fn purge(&mut self) -> usize {
        let mut areas = 0;
        let starts: Vec<usize> = self.blocks.keys().rev().copied().collect();
        for start in starts {
            let block = self.blocks.get_mut(&start).expect("a block");
            let lazy = block.count(Slot::Lazy);
            for slot in block.slots.iter_mut().filter(|slot| **slot == Slot::Lazy) {
                *slot = Slot::Free;
            }
            let class = block.class.number();
            self.demand.get_mut(&class).expect("a class").purged += lazy;
            self.update(start);
            areas += lazy;
        }
        areas
    }

    /// Each class keeps as many empty blocks as it took, if as many were freed, and an eighth less than before.
    fn end_purge(&mut self) {
        for class in Class::all() {
            let demand = self.demand.get_mut(&class.number()).expect("a class");
            let freed = demand.purged.div_ceil(class.slots());
            let less = demand.keep - demand.keep.div_ceil(8);
            let keep = demand.taken.min(freed).max(less).max(2);
            *demand = Demand {
                taken: 0,
                purged: 0,
                keep,
            };
        }
    }

    /// Frees at most `most` empty blocks: all of them if `all`, or those that are not kept.
    fn free_empty(&mut self, all: bool, mut most: usize) {
        for class in Class::all() {
            let keep = if all {
                0
            } else {
                self.demand[&class.number()].keep
            };
            while most > 0 && self.list(Place::Empty, class, 0).len() > keep {
                let start = self.list(Place::Empty, class, 0).pop().expect("a block");
                self.blocks.remove(&start);
                most -= 1;
            }
        }
    }

    fn in_place(&self, place: Place) -> usize {
        self.blocks
            .values()
            .filter(|block| block.place == place)
            .count()
    }
}

/// A space and the model of its blocks.
struct Pair {
    space: Space<FlushLog>,
    model: Model,
    cpus: usize,
    random: Random,
    /// The first addresses of busy areas, and of those in the tree.
    busy: Vec<usize>,
    in_tree: Vec<usize>,
    lazy_in_tree: usize,
    /// How often the model said what: another block, a new one, none.
    seen: HashMap<Place, usize>,
    refused: usize,
}

impl Pair {
    fn new(cpus: usize, limit: usize, shift: u32) -> Self {
        cpu::be_on(0, cpus);
        let home = span_of(64 * SIZE, 8000 * SIZE);
        let none = Demand {
            taken: 0,
            purged: 0,
            keep: 2,
        };
        Self {
            space: without_shadow(home).blocks(limit).space().expect("memory"),
            model: Model {
                blocks: BTreeMap::new(),
                lists: HashMap::new(),
                demand: Class::all().map(|class| (class.number(), none)).collect(),
                limit: limit * SIZE,
                shifts: [shift, shift.max(3)],
            },
            cpus,
            random: Random::new(limit as u64),
            busy: Vec::new(),
            in_tree: Vec::new(),
            lazy_in_tree: 0,
            seen: HashMap::new(),
            refused: 0,
        }
    }

    fn alloc(&mut self, pages: usize, cpu: usize) {
        cpu::be_on(cpu, self.cpus);
        let class = class_of(pages);
        // Requests of all sizes of the class.
        let pages = pages - self.random.below(pages / 8);
        let area = self.space.alloc(request(&self.space, pages * PAGE_SIZE));
        let start = area.expect("room").span().first();
        let own = self.model.group(class, cpu);
        let places: HashMap<usize, Place> = { self.model.blocks.iter() }
            .map(|(&start, block)| (start, block.place))
            .collect();
        match self.model.alloc(class, cpu) {
            Ok(wanted) => {
                assert_eq!(start, wanted, "{pages} pages on CPU {cpu}");
                let (block, _) = self.model.slot(start).expect("a block");
                *self.seen.entry(places[&block]).or_default() += 1;
                assert_eq!(self.model.blocks[&block].owner, own);
            }
            Err(Some(_)) => self.model.add(start, class, cpu),
            Err(None) => {
                self.refused += 1;
                let below = self.model.blocks.range(..=start).next_back();
                assert!(
                    below.is_none_or(|(&other, block)| other + block.class.block_size() <= start)
                );
                self.in_tree.push(start);
                return;
            }
        }
        self.busy.push(start);
    }

    /// Retires a random area.
    fn free(&mut self) {
        let is_in_tree = self.busy.is_empty() || self.random.below(8) == 0;
        let list = if is_in_tree {
            &mut self.in_tree
        } else {
            &mut self.busy
        };
        if list.is_empty() {
            return;
        }
        let start = list.swap_remove(self.random.below(list.len()));
        retire(&self.space, start);
        if is_in_tree {
            self.lazy_in_tree += 1;
            return;
        }
        let (_, slot) = self.model.slot(start).expect("a block");
        *slot = Slot::Lazy;
    }

    fn purge(&mut self, drain: bool) {
        let areas = self.model.purge() + core::mem::take(&mut self.lazy_in_tree);
        assert_eq!(self.space.purge(None, drain), areas);
        if areas > 0 {
            self.model.end_purge();
        }
        if drain {
            self.model.return_current(self.cpus);
        }
        if drain || areas > 0 {
            self.model.free_empty(drain, usize::MAX);
        }
    }

    fn reclaim(&mut self, most: usize) {
        let before = self.model.blocks.len();
        self.model.return_current(self.cpus);
        self.model.free_empty(true, most);
        let freed = before - self.model.blocks.len();
        assert_eq!(self.space.drain_for_reclaim(most), freed);
    }

    fn step(&mut self, step: usize) {
        // Some CPUs are busier than others.
        let most = 1 + self.random.below(self.cpus);
        let cpu = self.random.below(most);
        let pages = SIZES[self.random.below(SIZES.len())];
        let count = self.random.below(150);
        // It grows and shrinks.
        match self.random.below(if step % 100 < 50 { 9 } else { 20 }) {
            0 => self.purge(false),
            1 if self.random.below(10) == 0 => self.purge(true),
            1 if self.random.below(10) == 0 => self.reclaim(count),
            2..=6 => (0..count).for_each(|_| self.alloc(pages, cpu)),
            _ => (0..count).for_each(|_| self.free()),
        }
    }

    /// Compares the counts, and the list of all ranges.
    fn compare(&self) {
        let counts = self.space.blocks();
        let model = &self.model;
        let blocks = model.blocks.values();
        assert_eq!(counts.live, model.blocks.len());
        assert_eq!(
            counts.bytes,
            blocks.map(|block| block.class.block_size()).sum()
        );
        assert_eq!(counts.empty, model.in_place(Place::Empty));
        assert_eq!(self.space.reclaimable(), counts.empty);
        let [owned, orphans] = [Place::Owned, Place::Orphan].map(|place| model.in_place(place));
        assert_eq!(counts.partial, counts.empty + owned + orphans);
        let census = self.space.validate().expect("sound");
        assert_eq!(census.busy, self.busy.len() + self.in_tree.len());
        let wanted = model.blocks.iter().map(|(start, block)| {
            let place = match block.place {
                Place::Current => "current",
                _ => "pool",
            };
            let letters = block.slots.iter().map(|slot| match slot {
                Slot::Free => '.',
                Slot::Used => 'B',
                Slot::Lazy => 'l',
            });
            let (end, owner) = (start + block.class.block_size(), block.owner);
            let (pages, letters) = (block.class.slot_pages(), letters.collect::<String>());
            format!("{start:#x}-{end:#x} block cpu {owner} {place} slot {pages} {letters}")
        });
        let list = read_all(&self.space, 4096);
        let found = list.lines().filter(|line| line.contains(" block "));
        assert!(found.eq(wanted));
    }
}

#[test]
fn blocks_are_used_in_the_order_of_the_lists() {
    let mut all: HashMap<Place, usize> = HashMap::new();
    let mut refused = 0;
    // With 32 blocks for each CPU, CPUs need not share those of small classes.
    for (cpus, limit, shift) in [(2, 1500, 0), (12, 400, 0), (12, 100, 2), (3, 40, 2)] {
        let mut pair = Pair::new(cpus, limit, shift);
        for step in 0..1000 {
            pair.step(step);
            if step % 20 == 0 {
                pair.compare();
            }
        }
        pair.purge(true);
        pair.compare();
        free_everything(&pair.space);
        pair.seen
            .iter()
            .for_each(|(&place, count)| *all.entry(place).or_default() += count);
        refused += pair.refused;
    }
    println!("{all:?}, {refused} in the tree");
    let places = [Place::Current, Place::Owned, Place::Orphan, Place::Empty];
    assert!(refused > 0 && places.iter().all(|place| all.contains_key(place)));
}
