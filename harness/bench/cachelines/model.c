// SPDX-License-Identifier: GPL-2.0
/*
 * The caches of many CPUs, and the hooks that the emulator unicorn calls for what a CPU executes. machine.py sets both
 * up and has the same structures; docs/bench.md defines what is counted.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* libunicorn has no headers in its runtime package. */
extern int uc_reg_read(void *uc, int reg, void *value);
extern int uc_mem_read(void *uc, uint64_t addr, void *bytes, uint64_t size);
extern int uc_hook_add(void *uc, size_t *hook, int type, void *callback, void *user, uint64_t begin, uint64_t end, ...);

enum { UC_HOOK_CODE = 1 << 2, UC_HOOK_BLOCK = 1 << 3, UC_HOOK_MEM_READ = 1 << 10, UC_HOOK_MEM_WRITE = 1 << 11 };
enum { UC_MEM_WRITE = 17 };
enum { UC_ARM64_REG_X29 = 1, UC_ARM64_REG_SP = 4, UC_ARM64_REG_X0 = 199 };

/* What an instruction is. */
enum { RMW = 1, BARRIER = 2, EXCLUSIVE_LOAD = 4, LOCK = 8, PREFETCH = 16 };

#define MAX_CPUS 256
#define MAX_KINDS 16
#define MAX_MISSES (1u << 24)
#define LINE 64

/* Which caches have a line, and which had it until another CPU wrote. */
struct line {
	uint64_t have[MAX_CPUS / 64], lost[MAX_CPUS / 64];
	uint32_t touched, written; /* the last operation that did */
	uint16_t owner; /* the CPU that has it modified or exclusive, plus one */
};

/* What all operations of one kind did. */
struct counts {
	uint64_t instructions, read_misses, write_misses, rmw, barriers, lines, lines_written, locks;
};

/* A coherence miss. @pc: offset in the memory. */
struct miss {
	uint64_t addr;
	uint32_t pc;
	uint8_t is_write, kind;
	uint16_t cpu;
};

struct model {
	uint64_t base, size; /* of the memory whose lines are modelled: the kernel's image, and more */
	const uint8_t *classes; /* one for each of @words instructions of the image */
	uint64_t words;
	uint32_t cpu, kind, op, nr_misses;
	struct counts counts[MAX_KINDS];
	struct miss *misses;
} m;

static struct line *lines;
static uint32_t pc;
static bool is_exclusive;

static void note_miss(uint64_t addr, bool is_write)
{
	m.counts[m.kind].write_misses += is_write;
	m.counts[m.kind].read_misses += !is_write;
	if (m.nr_misses == MAX_MISSES)
		abort();
	m.misses[m.nr_misses++] = (struct miss){ addr, pc, is_write, m.kind, m.cpu };
}

/* One CPU reads or writes a line. MESI, with caches that evict nothing. */
static void access_line(struct line *l, uint64_t addr, bool is_write)
{
	uint64_t bit = 1ull << (m.cpu % 64);
	unsigned int word = m.cpu / 64;
	bool is_held = l->have[word] & bit, others = false;

	if (is_held && l->owner == m.cpu + 1)
		return;
	for (unsigned int i = 0; i < MAX_CPUS / 64; i++)
		others |= (l->have[i] & ~(i == word ? bit : 0)) != 0;
	if (is_write) {
		if (others)
			note_miss(addr, true);
		for (unsigned int i = 0; i < MAX_CPUS / 64; i++) {
			l->lost[i] |= l->have[i];
			l->have[i] = 0;
		}
		l->owner = m.cpu + 1;
	} else if (!is_held) {
		if (others && (l->owner || l->lost[word] & bit))
			note_miss(addr, false);
		l->owner = others ? 0 : m.cpu + 1;
	}
	l->have[word] |= bit;
	l->lost[word] &= ~bit;
}

/* The CPU accesses memory, which may be in several lines. */
void model_access(uint64_t addr, uint64_t size, bool is_write)
{
	struct counts *c = &m.counts[m.kind];

	for (uint64_t end = addr + size; addr < end; addr = (addr / LINE + 1) * LINE) {
		struct line *l = &lines[(addr - m.base) / LINE];

		if (addr - m.base >= m.size)
			continue;
		access_line(l, addr, is_write || is_exclusive);
		c->lines += l->touched != m.op;
		l->touched = m.op;
		if (is_write) {
			c->lines_written += l->written != m.op;
			l->written = m.op;
		}
	}
}

/* Unicorn calls this before each access. */
static void on_memory(void *uc, int type, uint64_t addr, int size, int64_t value, void *user)
{
	model_access(addr, size, type == UC_MEM_WRITE);
	is_exclusive = false;
}

/* A prefetch for writing. Unicorn has no hook for it, and executes it as nothing. */
static void on_prefetch(void *uc, uint64_t at)
{
	uint64_t addr;
	uint32_t word, reg;

	if (uc_mem_read(uc, at, &word, sizeof(word)))
		return;
	reg = word >> 5 & 31;
	uc_reg_read(uc, reg == 31 ? UC_ARM64_REG_SP : reg < 29 ? UC_ARM64_REG_X0 + reg : UC_ARM64_REG_X29 + reg - 29, &addr);
	addr += (word >> 10 & 0xfff) * 8;
	if (addr - m.base < m.size)
		access_line(&lines[(addr - m.base) / LINE], addr, true);
}

/* Unicorn calls this before each instruction that is more than counted. */
static void on_code(void *uc, uint64_t addr, uint32_t size, void *user)
{
	uint8_t class = m.classes[(addr - m.base) / 4];

	is_exclusive = class & EXCLUSIVE_LOAD;
	if (class & PREFETCH)
		on_prefetch(uc, addr);
}

/* Unicorn calls this before each block of instructions without a branch. */
static void on_block(void *uc, uint64_t addr, uint32_t size, void *user)
{
	struct counts *c = &m.counts[m.kind];
	uint64_t first = (addr - m.base) / 4;

	pc = addr - m.base;
	for (uint64_t i = first; i < first + size / 4 && i < m.words; i++) {
		c->instructions++;
		c->rmw += !!(m.classes[i] & RMW);
		c->barriers += !!(m.classes[i] & BARRIER);
		c->locks += !!(m.classes[i] & LOCK);
	}
}

/* Lets the emulator call the model, whose first members are set; all caches are empty. Returns 0 or an error. */
int model_start(void *uc)
{
	size_t hook;
	int err;

	free(lines);
	free(m.misses);
	lines = calloc(m.size / LINE, sizeof(*lines));
	m.misses = calloc(MAX_MISSES, sizeof(*m.misses));
	err = !lines || !m.misses || uc_hook_add(uc, &hook, UC_HOOK_BLOCK, on_block, NULL, 1, 0) ||
	      uc_hook_add(uc, &hook, UC_HOOK_MEM_READ | UC_HOOK_MEM_WRITE, on_memory, NULL, 1, 0);
	for (uint64_t i = 0; !err && i < m.words; i++) {
		uint64_t addr = m.base + 4 * i;

		if (m.classes[i] & (EXCLUSIVE_LOAD | PREFETCH))
			err = uc_hook_add(uc, &hook, UC_HOOK_CODE, on_code, NULL, addr, addr);
	}
	return err;
}
