/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The caches of many CPUs, and what one CPU does to them.
 *
 * machine.py sets the emulator up, and calls model_call() for each operation.
 * docs/bench.md defines what is counted.
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_CPUS 256
#define MAX_SPANS 8
#define MAX_KINDS 16
#define MAX_LOCKS 16
/* A line has 64 bytes. */
#define LINE_SHIFT 6

/* What an instruction is, one number for each word of the kernel's text. */
enum { RMW = 1, BARRIER = 2, EXCLUSIVE_LOAD = 4, LOCK = 8, UNLOCK = 16, STUB = 32, PREFETCH = 64 };

/* How many instructions of some classes there are before a word of the text. */
struct before {
	uint32_t rmw, barriers;
};

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
	uint64_t instructions, read_misses, write_misses, rmw, barriers, lines, lines_written, locks, hold;
};

/* A coherence miss. */
struct miss {
	uint64_t addr;
	uint32_t pc; /* offset in the text */
	uint8_t is_write, kind;
	uint16_t cpu;
};

extern struct model {
	struct line *lines;
	struct span spans[MAX_SPANS];
	unsigned int nr_spans;
	uint64_t text, text_words;
	const uint16_t *classes;
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
	int regs[32], reg_x0;
} m;

void model_access(unsigned int cpu, uint64_t addr, uint64_t size, bool is_write);
void model_prefetch(unsigned int cpu, uint64_t addr);
int model_lines(void);

#endif
