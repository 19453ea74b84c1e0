// SPDX-License-Identifier: GPL-2.0
/*
 * The caches: lines with MESI states, and misses.
 */
#include "model.h"

/* Adds memory whose lines are modelled; before the first call. */
EXPORT int model_add(uint64_t base, uint64_t size)
{
	struct span *last = m.nr_spans ? &m.spans[m.nr_spans - 1] : NULL;

	if (m.nr_spans == MAX_SPANS)
		return -1;
	m.spans[m.nr_spans++] = (struct span){ base, size, last ? last->first + (last->size >> LINE_SHIFT) + 1 : 0 };
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
			return &m.lines[m.spans[i].first + ((addr - m.spans[i].base) >> LINE_SHIFT)];
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
	for (; addr < end; addr = ((addr >> LINE_SHIFT) + 1) << LINE_SHIFT) {
		struct line *l = line_of(addr);

		if (!l)
			continue;
		access_line(l, addr, is_write || m.exclusive);
		m.counts[m.kind].lines += l->touched != m.op;
		l->touched = m.op;
		if (is_write) {
			m.counts[m.kind].lines_written += l->written != m.op;
			l->written = m.op;
		}
	}
}

/* @cpu fetches a line for writing, and does not write yet. */
void model_prefetch(unsigned int cpu, uint64_t addr)
{
	struct line *l = line_of(addr);

	m.cpu = cpu;
	if (l)
		access_line(l, addr, true);
}

/* Allocates the lines of the memory that was added. Returns 0 or -1. */
int model_lines(void)
{
	struct span *last = &m.spans[m.nr_spans - 1];

	m.lines = calloc(last->first + (last->size >> LINE_SHIFT) + 1, sizeof(*m.lines));
	return m.lines ? 0 : -1;
}
