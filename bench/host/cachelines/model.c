// SPDX-License-Identifier: GPL-2.0
/*
 * The caches of many CPUs, and what one CPU does to them: the hooks that the
 * emulator calls for each instruction and each access to memory.
 *
 * machine.py sets the emulator up, and calls model_call() for each operation.
 * docs/bench.md defines what is counted.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_CPUS 256
#define MAX_SPANS 8
#define MAX_KINDS 16
#define MAX_LOCKS 16

/* What an instruction is, one byte for each word of the kernel's text. */
enum {
	RMW = 1, BARRIER = 2, ACQUIRE = 4, RELEASE = 8,
	EXCLUSIVE_LOAD = 16, LOCK = 32, UNLOCK = 64, STUB = 128,
};

/* How many instructions of some classes there are before a word of the text. */
struct before {
	uint32_t rmw, barriers, acquires, releases;
};

/* libunicorn has no headers in its runtime package. */
extern int uc_emu_start(void *uc, uint64_t begin, uint64_t until, uint64_t timeout, size_t count);
extern int uc_reg_write_batch(void *uc, int *regs, void *const *vals, int count);
extern int uc_emu_stop(void *uc);
extern int uc_reg_read(void *uc, int reg, void *value);

extern int uc_mem_read(void *uc, uint64_t addr, void *bytes, uint64_t size);
extern int uc_hook_add(void *uc, size_t *hook, int type, void *callback, void *user, uint64_t begin, uint64_t end, ...);

enum { UC_HOOK_CODE = 1 << 2, UC_HOOK_BLOCK = 1 << 3, UC_HOOK_MEM_READ = 1 << 10, UC_HOOK_MEM_WRITE = 1 << 11 };
enum { UC_MEM_READ = 16, UC_MEM_WRITE = 17 };

/* A line: which caches have it, and which had it until another CPU wrote. */
struct line {
	uint64_t have[MAX_CPUS / 64];
	uint64_t lost[MAX_CPUS / 64];
	uint32_t touched, written; /* the last operation that did */
	uint16_t owner; /* the CPU that has it modified or exclusive, plus one */
};

struct span {
	uint64_t base, size, first; /* @first: index of its first line */
};

/* What all operations of one kind did. */
struct counts {
	uint64_t ops, insns, read_misses, write_misses, rmw, barriers, acquires, releases;
	uint64_t touched, written, locks, hold, hold_lock;
};

/* A coherence miss. */
struct miss {
	uint64_t addr;
	uint32_t pc; /* offset in the text */
	uint8_t is_write, kind;
	uint16_t cpu;
};

static struct {
	struct line *lines;
	struct span spans[MAX_SPANS];
	unsigned int nr_spans, shift;
	uint64_t text, text_words;
	const uint8_t *classes;
	struct before *before;
	void (*stub)(uint64_t addr);
	unsigned int cpu, kind;
	uint32_t op;
	bool exclusive;
	uint32_t pc;
	uint64_t now, block; /* instructions so far, and when this block began */
	struct { uint64_t lock, since; } held[MAX_LOCKS];
	unsigned int nr_held;
	struct counts counts[MAX_KINDS];
	struct miss *misses;
	uint64_t nr_misses, max_misses;
	uint64_t entry, exit;
	int regs[13], reg_x0;
} m;

/*
 * Starts a model without lines. @regs: numbers of X0 to X12. @stub: called for a function
 * that is replaced.
 */
EXPORT int model_init(unsigned int line_shift, uint64_t text, uint64_t text_words, const uint8_t *classes,
		       uint64_t entry, uint64_t exit, const int *regs, void (*stub)(uint64_t addr))
{
	free(m.lines);
	free(m.misses);
	free(m.before);
	memset(&m, 0, sizeof(m));
	m.shift = line_shift;
	m.text = text;
	m.text_words = text_words;
	m.classes = classes;
	m.entry = entry;
	m.exit = exit;
	memcpy(m.regs, regs, sizeof(m.regs));
	m.reg_x0 = regs[0];
	m.stub = stub;
	m.before = calloc(text_words + 1, sizeof(*m.before));
	for (uint64_t i = 0; m.before && i < text_words; i++) {
		m.before[i + 1] = m.before[i];
		m.before[i + 1].rmw += !!(classes[i] & RMW);
		m.before[i + 1].barriers += !!(classes[i] & BARRIER);
		m.before[i + 1].acquires += !!(classes[i] & ACQUIRE);
		m.before[i + 1].releases += !!(classes[i] & RELEASE);
	}
	return m.before ? 0 : -1;
}

/* Adds memory whose lines are modelled; before the first call. */
EXPORT int model_add(uint64_t base, uint64_t size)
{
	struct span *last = m.nr_spans ? &m.spans[m.nr_spans - 1] : NULL;

	if (m.nr_spans == MAX_SPANS)
		return -1;
	m.spans[m.nr_spans++] = (struct span){ base, size, last ? last->first + (last->size >> m.shift) + 1 : 0 };
	return 0;
}

/* Forgets what was counted, not the caches. */
EXPORT void model_reset(void)
{
	memset(m.counts, 0, sizeof(m.counts));
	m.nr_misses = 0;
}

EXPORT const struct counts *model_counts(void) { return m.counts; }
EXPORT const struct miss *model_misses(void) { return m.misses; }
EXPORT uint64_t model_nr_misses(void) { return m.nr_misses; }

static struct line *line_of(uint64_t addr)
{
	for (unsigned int i = 0; i < m.nr_spans; i++)
		if (addr - m.spans[i].base < m.spans[i].size)
			return &m.lines[m.spans[i].first + ((addr - m.spans[i].base) >> m.shift)];
	return NULL;
}

static void note_miss(uint64_t addr, bool is_write)
{
	struct counts *c = &m.counts[m.kind];

	if (is_write)
		c->write_misses++;
	else
		c->read_misses++;
	if (m.nr_misses == m.max_misses) {
		m.max_misses = m.max_misses ? 2 * m.max_misses : 1 << 16;
		m.misses = realloc(m.misses, m.max_misses * sizeof(*m.misses));
		if (!m.misses)
			abort();
	}
	m.misses[m.nr_misses++] = (struct miss){ addr, m.pc, is_write, m.kind, m.cpu };
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

EXPORT void model_access(unsigned int cpu, uint64_t addr, uint64_t size, bool is_write)
{
	uint64_t end = addr + (size ? size : 1);

	m.cpu = cpu;
	for (; addr < end; addr = ((addr >> m.shift) + 1) << m.shift) {
		struct line *l = line_of(addr);

		if (!l)
			continue;
		access_line(l, addr, is_write || m.exclusive);
		m.counts[m.kind].touched += l->touched != m.op;
		l->touched = m.op;
		if (is_write) {
			m.counts[m.kind].written += l->written != m.op;
			l->written = m.op;
		}
	}
}

/* Unicorn calls this before each access. */
static void on_memory(void *uc, int type, uint64_t addr, int size, int64_t value, void *user)
{
	model_access(m.cpu, addr, size, type == UC_MEM_WRITE);
	m.exclusive = false;
}

static void on_lock(void *uc, bool is_lock)
{
	struct counts *c = &m.counts[m.kind];
	uint64_t lock;

	uc_reg_read(uc, m.reg_x0, &lock);
	if (is_lock) {
		c->locks++;
		if (m.nr_held < MAX_LOCKS) {
			m.held[m.nr_held].lock = lock;
			m.held[m.nr_held++].since = m.block;
		}
		return;
	}
	for (unsigned int i = m.nr_held; i-- > 0;) {
		if (m.held[i].lock != lock)
			continue;
		if (m.block - m.held[i].since > c->hold) {
			c->hold = m.block - m.held[i].since;
			c->hold_lock = lock;
		}
		m.held[i] = m.held[--m.nr_held];
		return;
	}
}

/* Unicorn calls this before each instruction whose class needs it. */
static void on_code(void *uc, uint64_t addr, uint32_t size, void *user)
{
	uint8_t class = m.classes[(addr - m.text) / 4];

	m.exclusive = class & EXCLUSIVE_LOAD;
	if (class & (LOCK | UNLOCK))
		on_lock(uc, class & LOCK);
	if (class & STUB)
		m.stub(addr);
}

/*
 * Unicorn calls this when a call has returned. An end address for
 * uc_emu_start() would cost more than a call: its block is translated again
 * each time.
 */
static void on_return(void *uc, uint64_t addr, uint32_t size, void *user)
{
	uc_emu_stop(uc);
}

/* Unicorn calls this before each block of instructions without a branch. */
static void on_block(void *uc, uint64_t addr, uint32_t size, void *user)
{
	uint64_t index = (addr - m.text) / 4, words = size / 4;
	struct counts *c = &m.counts[m.kind];

	if (index + words > m.text_words)
		return;
	m.pc = addr - m.text;
	m.block = m.now;
	m.now += words;
	c->insns += words;
	c->rmw += m.before[index + words].rmw - m.before[index].rmw;
	c->barriers += m.before[index + words].barriers - m.before[index].barriers;
	c->acquires += m.before[index + words].acquires - m.before[index].acquires;
	c->releases += m.before[index + words].releases - m.before[index].releases;
}

/* Lets the emulator call the model. */
EXPORT int model_hook(void *uc)
{
	size_t hook;
	int err;

	err = uc_hook_add(uc, &hook, UC_HOOK_BLOCK, on_block, NULL, 1, 0) ||
	      uc_hook_add(uc, &hook, UC_HOOK_CODE, on_return, NULL, m.exit, m.exit) ||
	      uc_hook_add(uc, &hook, UC_HOOK_MEM_READ | UC_HOOK_MEM_WRITE, on_memory, NULL, 1, 0);
	for (uint64_t i = 0; !err && i < m.text_words; i++) {
		uint64_t addr = m.text + 4 * i;

		if (m.classes[i] & (EXCLUSIVE_LOAD | LOCK | UNLOCK | STUB))
			err = uc_hook_add(uc, &hook, UC_HOOK_CODE, on_code, NULL, addr, addr);
	}
	return err;
}

/*
 * Lets @cpu call the function at @pc with @nr arguments, as one operation of
 * @kind. Returns an error of Unicorn, with the result in @result.
 */
EXPORT int model_call(void *uc, unsigned int cpu, unsigned int kind, const uint64_t *state, uint64_t pc,
		      const uint64_t *args, unsigned int nr, uint64_t *result)
{
	uint64_t values[13] = { 0 };
	void *pointers[13];
	int err;

	for (unsigned int i = 0; i < 13; i++)
		pointers[i] = &values[i];
	for (unsigned int i = 0; i < nr && i < 8; i++)
		values[i] = args[i];
	/* SP_EL0 (the task), TPIDR_EL1 (the percpu offset) and SP. */
	memcpy(&values[9], state, 3 * sizeof(*state));
	values[12] = pc;
	m.cpu = cpu;
	m.kind = kind;
	m.op++;
	m.counts[kind].ops++;
	uc_reg_write_batch(uc, m.regs, pointers, 13);
	err = uc_emu_start(uc, m.entry, m.entry + 2048, 0, 0);
	uc_reg_read(uc, m.reg_x0, result);
	return err;
}

/* Reads a double word as no CPU. Returns an error of Unicorn. */
EXPORT int model_peek(void *uc, uint64_t addr, uint64_t *value) { return uc_mem_read(uc, addr, value, sizeof(*value)); }

/* Allocates the lines of the memory that was added. */
EXPORT int model_start(void)
{
	struct span *last = &m.spans[m.nr_spans - 1];

	m.lines = calloc(last->first + (last->size >> m.shift) + 1, sizeof(*m.lines));
	return m.lines ? 0 : -1;
}
