/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What count.c, lines.c and softirq.c share: the measured parts of the benchmark, each between bench_mark_begin(case, part, ops) and
 * bench_mark_end() of bench/run.c on one virtual CPU; and the hooks of these and other functions of the guest. A window is
 * a case and a part of it.
 */
#ifndef _VMAP_BENCH_MARKS_H
#define _VMAP_BENCH_MARKS_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu-plugin.h"

#define MAX_WINDOWS 128
#define MAX_HOOKS 64

struct window {
	char name[64], part[32];
	uint64_t ops, passes;
};

/* A function of the guest. @kind: index in the names of arguments of a plugin. */
struct hook {
	int kind;
	uint64_t addr;
};

static struct hook hooks[MAX_HOOKS];
static int n_hooks;
static const char *out_path;
static struct window windows[MAX_WINDOWS];
static int n_windows;
/* Registers of the first three arguments of a function. All CPUs have the same handles. */
static struct qemu_plugin_register *args[3];
static GByteArray *buffer;

static inline void fail(const char *why)
{
	fprintf(stderr, "plugin: error: %s\n", why);
	exit(1);
}

static inline void *zalloc(size_t size)
{
	void *p = calloc(1, size);

	if (!p)
		fail("no memory");
	return p;
}

static inline uint64_t read_register(struct qemu_plugin_register *handle)
{
	uint64_t value = 0;

	g_byte_array_set_size(buffer, 0);
	if (!handle || qemu_plugin_read_register(handle, buffer) < 8)
		fail("cannot read a register of the guest");
	memcpy(&value, buffer->data, sizeof(value));
	return value;
}

/* A string of the guest, made one word. */
static inline void read_string(uint64_t addr, char *to, size_t size)
{
	size_t i;

	for (i = 0; i < size - 1; i++) {
		if (!qemu_plugin_read_memory_vaddr(addr + i, buffer, 1))
			fail("cannot read the name of a case");
		to[i] = buffer->data[0];
		if (!to[i])
			break;
		if (to[i] <= ' ' || to[i] > '~')
			to[i] = '_';
	}
	to[i] = 0;
}

/* The number of the window that begins; called at bench_mark_begin(). */
static inline int window_begins(void)
{
	struct window this = {};
	int i;

	read_string(read_register(args[0]), this.name, sizeof(this.name));
	read_string(read_register(args[1]), this.part, sizeof(this.part));
	for (i = 0; i < n_windows; i++) {
		if (!strcmp(windows[i].name, this.name) && !strcmp(windows[i].part, this.part))
			break;
	}
	if (i == MAX_WINDOWS)
		fail("too many cases");
	if (i == n_windows)
		windows[n_windows++] = this;
	windows[i].ops += read_register(args[2]) & 0xffffffff;
	windows[i].passes++;
	return i;
}

static inline void write_window(FILE *out, int i)
{
	fprintf(out, "window %d %s %s %" PRIu64 " %" PRIu64 "\n", i, windows[i].name,
		*windows[i].part ? windows[i].part : "cost", windows[i].ops, windows[i].passes);
}

static inline bool is_dsb(uint32_t insn)
{
	return (insn & 0xfffff0ff) == 0xd503309f;
}

static inline bool is_tlbi(uint32_t insn)
{
	return (insn & 0xfff8f000) == 0xd5088000;
}

/* An argument: out=FILE, or one of @n @kinds, "begin=" and so on, with an address in hexadecimal. */
static inline bool add_argument(const char *text, const char *const *kinds, int n)
{
	char *rest;
	int k;

	if (!strncmp(text, "out=", 4)) {
		out_path = strdup(text + 4);
		return out_path;
	}
	for (k = 0; k < n && strncmp(text, kinds[k], strlen(kinds[k])); k++)
		;
	if (k == n || n_hooks == MAX_HOOKS)
		return false;
	hooks[n_hooks].kind = k;
	hooks[n_hooks].addr = strtoull(text + strlen(kinds[k]), &rest, 16);
	return !*rest && hooks[n_hooks++].addr;
}

/* Have @runs called ahead of an instruction that a hook is for, with the hook. */
static inline void register_hooks(struct qemu_plugin_insn *insn, void (*runs)(unsigned int cpu, void *hook))
{
	uint64_t addr = qemu_plugin_insn_vaddr(insn);
	int h;

	for (h = 0; h < n_hooks; h++) {
		if (hooks[h].addr == addr)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, runs, QEMU_PLUGIN_CB_R_REGS, &hooks[h]);
	}
}

/* The file of out=, and its end: without that it is not complete. */
static inline FILE *begin_file(void)
{
	FILE *out = fopen(out_path, "w");

	if (!out)
		fail("cannot write the file of out=");
	return out;
}

static inline void end_file(FILE *out)
{
	fprintf(out, "end\n");
	if (fclose(out))
		fail("cannot write the file of out=");
}

/* Find the registers with these names. */
static inline void find_registers(const char *const *names, struct qemu_plugin_register ***handles, int n)
{
	GArray *registers = qemu_plugin_get_registers();
	qemu_plugin_reg_descriptor *descriptors = (qemu_plugin_reg_descriptor *)registers->data;
	unsigned int i;
	int r;

	for (i = 0; i < registers->len; i++) {
		for (r = 0; r < n; r++) {
			if (!strcmp(descriptors[i].name, names[r]))
				*handles[r] = descriptors[i].handle;
		}
	}
	g_array_free(registers, 1);
	if (!buffer)
		buffer = g_byte_array_new();
}

#endif /* _VMAP_BENCH_MARKS_H */
