// SPDX-License-Identifier: GPL-2.0
/*
 * Plugin of QEMU: the longest run of softirqs in the measured parts of the benchmark, on whichever CPU. Much quicker than count.c.
 *
 *   out=FILE      where the counts go when the guest ends
 *   begin=ADDR    bench_mark_begin(case, part, ops), in hexadecimal; end=ADDR: bench_mark_end()
 *   softirq=ADDR  the function that runs softirqs
 *
 * Lines of the file:
 *
 *   window N CASE PART OPS PASSES
 *   softirq N LONGEST               in instructions of the CPU that runs them, with those of interrupts
 *   end
 *
 * All virtual CPUs must take turns on one host thread, as with -icount.
 */
#include "marks.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

#define MAX_CPUS 64

enum hook_kind { HOOK_BEGIN, HOOK_END, HOOK_SOFTIRQ };

static const char *const kinds[] = { "begin=", "end=", "softirq=" };

/* A block of code that QEMU translates as one. */
struct block {
	uint64_t addr, insns;
};

/* @identity: where the kernel's data of a CPU are, which a register has; @return_to: while softirqs run on it, else 0. */
static struct {
	uint64_t identity, insns, return_to;
} cpus[MAX_CPUS];
static struct qemu_plugin_register *link_register, *identity_register;
static uint64_t longest[MAX_WINDOWS];
static int n_running;
/* 0 if no part is open, else the window's number and 1. */
static int window;

static int this_cpu(void)
{
	uint64_t identity = read_register(identity_register);
	int i;

	for (i = 0; i < MAX_CPUS && cpus[i].identity && cpus[i].identity != identity; i++)
		;
	if (i == MAX_CPUS)
		fail("more CPUs than there can be");
	cpus[i].identity = identity;
	return i;
}

static void softirqs_end(int cpu)
{
	if (window && cpus[cpu].insns > longest[window - 1])
		longest[window - 1] = cpus[cpu].insns;
	cpus[cpu].return_to = 0;
	n_running--;
}

static void block_runs(unsigned int number, void *data)
{
	struct block *block = data;
	int cpu;

	if (!n_running)
		return;
	/* Not @number: that is of the CPU for which the block was translated. */
	cpu = this_cpu();
	if (cpus[cpu].return_to == block->addr)
		softirqs_end(cpu);
	cpus[cpu].insns += block->insns;
}

/* Called when the first instruction of a hooked function runs. */
static void hook_runs(unsigned int number, void *data)
{
	struct hook *hook = data;
	int cpu;

	switch (hook->kind) {
	case HOOK_BEGIN:
		window = window_begins() + 1;
		break;
	case HOOK_END:
		window = 0;
		break;
	case HOOK_SOFTIRQ:
		cpu = this_cpu();
		cpus[cpu].insns = 0;
		cpus[cpu].return_to = read_register(link_register);
		n_running++;
		break;
	}
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t i, n = qemu_plugin_tb_n_insns(tb);
	struct block *block = zalloc(sizeof(*block));

	*block = (struct block) { qemu_plugin_tb_vaddr(tb), n };
	for (i = 0; i < n; i++)
		register_hooks(qemu_plugin_tb_get_insn(tb, i), hook_runs);
	qemu_plugin_register_vcpu_tb_exec_cb(tb, block_runs, QEMU_PLUGIN_CB_NO_REGS, block);
}

static void cpu_begins(qemu_plugin_id_t id, unsigned int number)
{
	static const char *const names[] = { "x0", "x1", "x2", "x30", "TPIDR_EL1" };
	struct qemu_plugin_register **handles[] = {
		&args[0], &args[1], &args[2], &link_register, &identity_register,
	};

	find_registers(names, handles, 5);
}

static void write_counts(qemu_plugin_id_t id, void *data)
{
	FILE *out = begin_file();
	int i;

	for (i = 0; i < n_windows; i++) {
		write_window(out, i);
		fprintf(out, "softirq %d %" PRIu64 "\n", i, longest[i]);
	}
	end_file(out);
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
					   int argc, char **argv)
{
	bool is_good = !strcmp(info->target_name, "aarch64");
	int i;

	for (i = 0; i < argc; i++)
		is_good &= add_argument(argv[i], kinds, sizeof(kinds) / sizeof(kinds[0]));
	if (!is_good || !out_path) {
		fprintf(stderr, "softirq: error: wrong arguments; see bench/plugin/softirq.c\n");
		return -1;
	}
	qemu_plugin_register_vcpu_init_cb(id, cpu_begins);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, write_counts, NULL);
	return 0;
}
