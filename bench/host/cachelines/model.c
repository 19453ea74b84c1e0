// SPDX-License-Identifier: GPL-2.0
/*
 * The hooks that the emulator calls for blocks, instructions and accesses to
 * memory, and calls of functions.
 */
#include "model.h"

/* libunicorn has no headers in its runtime package. */
extern int uc_emu_start(void *uc, uint64_t begin, uint64_t until, uint64_t timeout, size_t count);
extern int uc_reg_write_batch(void *uc, int *regs, void *const *vals, int count);
extern int uc_emu_stop(void *uc);
extern int uc_reg_read(void *uc, int reg, void *value);

extern int uc_mem_read(void *uc, uint64_t addr, void *bytes, uint64_t size);
extern int uc_hook_add(void *uc, size_t *hook, int type, void *callback, void *user, uint64_t begin, uint64_t end, ...);

enum { UC_HOOK_CODE = 1 << 2, UC_HOOK_BLOCK = 1 << 3, UC_HOOK_MEM_READ = 1 << 10, UC_HOOK_MEM_WRITE = 1 << 11 };
enum { UC_MEM_READ = 16, UC_MEM_WRITE = 17 };

struct model m;

/*
 * Starts a model without lines. @regs: numbers of X0 to X30 and SP. @stub: called for a
 * function that is replaced.
 */
EXPORT int model_init(uint64_t text, uint64_t text_words, const uint16_t *classes,
		       uint64_t entry, uint64_t exit, const int *regs, void (*stub)(uint64_t addr))
{
	free(m.lines);
	free(m.misses);
	free(m.before);
	memset(&m, 0, sizeof(m));
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
	}
	return m.before ? 0 : -1;
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
		if (m.block - m.held[i].since > c->hold)
			c->hold = m.block - m.held[i].since;
		m.held[i] = m.held[--m.nr_held];
		return;
	}
}

/* A prefetch for writing. Unicorn has no hook for it, and executes it as nothing. */
static void on_prefetch(void *uc, uint64_t addr)
{
	uint64_t base;
	uint32_t word;

	if (!uc_mem_read(uc, addr, &word, sizeof(word)) && !uc_reg_read(uc, m.regs[word >> 5 & 31], &base))
		model_prefetch(m.cpu, base + (word >> 10 & 0xfff) * 8);
}

/* Unicorn calls this before each instruction whose class needs it. */
static void on_code(void *uc, uint64_t addr, uint32_t size, void *user)
{
	uint16_t class = m.classes[(addr - m.text) / 4];

	m.exclusive = class & EXCLUSIVE_LOAD;
	if (class & (LOCK | UNLOCK))
		on_lock(uc, class & LOCK);
	if (class & PREFETCH)
		on_prefetch(uc, addr);
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
	c->instructions += words;
	c->rmw += m.before[index + words].rmw - m.before[index].rmw;
	c->barriers += m.before[index + words].barriers - m.before[index].barriers;
}

/* All memory was added: allocates its lines, and lets the emulator call the model. */
EXPORT int model_start(void *uc)
{
	size_t hook;
	int err;

	err = model_lines() ||
	      uc_hook_add(uc, &hook, UC_HOOK_BLOCK, on_block, NULL, 1, 0) ||
	      uc_hook_add(uc, &hook, UC_HOOK_CODE, on_return, NULL, m.exit, m.exit) ||
	      uc_hook_add(uc, &hook, UC_HOOK_MEM_READ | UC_HOOK_MEM_WRITE, on_memory, NULL, 1, 0);
	for (uint64_t i = 0; !err && i < m.text_words; i++) {
		uint64_t addr = m.text + 4 * i;

		if (m.classes[i] & (EXCLUSIVE_LOAD | LOCK | UNLOCK | STUB | PREFETCH))
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
	uc_reg_write_batch(uc, m.regs, pointers, 13);
	err = uc_emu_start(uc, m.entry, m.entry + 2048, 0, 0);
	uc_reg_read(uc, m.reg_x0, result);
	return err;
}
