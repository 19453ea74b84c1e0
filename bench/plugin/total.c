// SPDX-License-Identifier: GPL-2.0
/*
 * Plugin of QEMU: counts the instructions that all CPUs of a guest execute between two marks, and nothing else: much quicker than
 * count.c.
 *
 *   out=FILE     where the counts go when the guest ends: a line for each pair of marks
 *   begin=ADDR   a function of the guest kernel, in hexadecimal; end=ADDR: another one
 *
 * A CPU that sleeps executes nothing. All virtual CPUs must take turns on one host thread, as with -icount.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qemu-plugin.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

static uint64_t total, start, marks[2];
static FILE *out;

static void block_runs(unsigned int cpu, void *insns)
{
	total += (uintptr_t)insns;
}

static void mark_runs(unsigned int cpu, void *mark)
{
	if (mark == &marks[0]) {
		start = total;
	} else if (start) {
		fprintf(out, "%" PRIu64 "\n", total - start);
		start = 0;
	}
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t i, m, n = qemu_plugin_tb_n_insns(tb);

	for (i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		for (m = 0; m < 2; m++) {
			if (qemu_plugin_insn_vaddr(insn) == marks[m])
				qemu_plugin_register_vcpu_insn_exec_cb(insn, mark_runs,
								       QEMU_PLUGIN_CB_NO_REGS,
								       &marks[m]);
		}
	}
	qemu_plugin_register_vcpu_tb_exec_cb(tb, block_runs, QEMU_PLUGIN_CB_NO_REGS, (void *)n);
}

static void guest_ends(qemu_plugin_id_t id, void *data)
{
	fprintf(out, "end\n");
	fclose(out);
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
					   int argc, char **argv)
{
	int i;

	for (i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "out=", 4))
			out = fopen(argv[i] + 4, "w");
		else if (!strncmp(argv[i], "begin=", 6))
			marks[0] = strtoull(argv[i] + 6, NULL, 16);
		else if (!strncmp(argv[i], "end=", 4))
			marks[1] = strtoull(argv[i] + 4, NULL, 16);
	}
	if (!out || !marks[0] || !marks[1]) {
		fprintf(stderr, "total: error: wrong arguments; see bench/plugin/total.c\n");
		return -1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, guest_ends, NULL);
	return 0;
}
