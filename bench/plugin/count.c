// SPDX-License-Identifier: GPL-2.0
/*
 * Plugin of QEMU: counts what a guest kernel executes in the measured parts of
 * the benchmark.
 *
 * A part is what runs on a virtual CPU between bench_mark_begin() and
 * bench_mark_end() of bench/run.c. Arguments, addresses in hexadecimal:
 *
 *   out=FILE      where the counts go when the guest ends
 *   begin=ADDR    bench_mark_begin(case, part, ops); end=ADDR: bench_mark_end()
 *   lock=ADDR     a function that takes a spinlock, its first argument
 *   unlock=ADDR   a function that releases one
 *   irq=ADDR      where an interrupt of the kernel begins; ret=ADDR: where it
 *                 returns. It does not count as part of a hold.
 *
 * Lines of the file, a window being a case and a part of it:
 *
 *   window N CASE PART OPS PASSES
 *   block N ADDR INSNS RMW BARRIERS ORDERED TLBI TIMES
 *   flush N TIMES                   runs of TLBI instructions up to a DSB
 *   hold N LOCK CALLER TIMES INSNS LONGEST
 *   end
 *
 * All virtual CPUs must take turns on one host thread, as with -icount.
 */
#include "marks.h"

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

#define MAX_CPUS 64
#define MAX_DEPTH 16
#define BUCKETS (1 << 16)
#define HOLD_BUCKETS (1 << 12)

/* What one instruction is. */
struct kinds {
	uint32_t rmw;
	uint32_t barriers;
	uint32_t ordered;
	uint32_t tlbi;
};

/* A block of code that QEMU translates as one. */
struct block {
	struct block *next;
	uint64_t addr;
	uint32_t insns;
	struct kinds kinds;
	/* How often it ran, for each window; NULL before the first time. */
	uint64_t *times;
};

/* All holds of a lock that one caller took. */
struct holds {
	struct holds *next;
	int window;
	uint64_t lock;
	uint64_t caller;
	uint64_t times;
	uint64_t insns;
	uint64_t longest;
};

struct held {
	uint64_t lock;
	uint64_t caller;
	uint64_t start;
	uint64_t irq_insns;
	bool is_waiting;
};

struct cpu {
	/* What the register that identifies a CPU has on this one. */
	uint64_t identity;
	/* Instructions since the guest began. */
	uint64_t insns;
	/* Those of interrupts while a lock was held. */
	uint64_t irq_insns;
	uint64_t irq_start;
	bool in_irq;
	bool in_flush;
	/* 0 if no part is open here, else the window's number and 1. */
	int window;
	struct held held[MAX_DEPTH];
	int depth;
};

enum hook_kind {
	HOOK_BEGIN, HOOK_END, HOOK_LOCK, HOOK_UNLOCK, HOOK_IRQ, HOOK_RET,
};

static struct block *blocks[BUCKETS];
static struct holds *all_holds[HOLD_BUCKETS];
/* Runs of TLBI instructions in each window. */
static uint64_t flushes[MAX_WINDOWS];
static int open_parts, last_window;
static struct cpu cpus[MAX_CPUS];
static int n_cpus, n_known_cpus;
static struct qemu_plugin_register *link_register, *identity_register;

/*
 * An exclusive pair counts once for each store-exclusive: for each attempt to
 * store. Acquire and release loads and stores are "ordered"; where an RMW has
 * that too, it is only an RMW.
 */
static void classify(uint32_t insn, struct kinds *k)
{
	/* DSB, DMB, ISB. */
	if (is_dsb(insn) || (insn & 0xfffff0ff) == 0xd50330bf ||
	    (insn & 0xfffff0ff) == 0xd50330df)
		k->barriers++;
	else if (is_tlbi(insn))
		k->tlbi++;
	else if ((insn & 0x3f000000) == 0x08000000) {
		bool o2 = insn >> 23 & 1, load = insn >> 22 & 1, o1 = insn >> 21 & 1;

		if (o2 && o1)
			k->rmw++; /* CAS */
		else if (o2)
			k->ordered++; /* LDAR, STLR and their limited kind */
		else if (o1 && !(insn >> 31))
			k->rmw++; /* CASP */
		else if (!load)
			k->rmw++; /* STXR, STXP */
	} else if ((insn & 0x3f200c00) == 0x38200000) {
		uint32_t opc = insn >> 12 & 15;

		if (opc == 12)
			k->ordered++; /* LDAPR */
		else if (opc <= 8)
			k->rmw++; /* LDADD ... LDUMIN, SWP */
	} else if ((insn & 0x3f200c00) == 0x19000000) {
		k->ordered++; /* LDAPUR, STLUR */
	}
}

/*
 * The CPU that runs. The number that QEMU 10.0 hands to callbacks is that of the
 * CPU for which the block was translated, if CPUs take turns. The kernel has the
 * address of its own data for the CPU in a register.
 */
static struct cpu *this_cpu(void)
{
	static struct cpu *last = &cpus[0];
	uint64_t identity;
	int i;

	if (n_cpus == 1)
		return last;
	identity = read_register(identity_register);
	if (last->identity == identity && n_known_cpus)
		return last;
	for (i = 0; i < n_known_cpus && cpus[i].identity != identity; i++)
		;
	if (i == MAX_CPUS)
		fail("more CPUs than there can be");
	if (i == n_known_cpus)
		cpus[n_known_cpus++].identity = identity;
	last = &cpus[i];
	return last;
}

/* Called for each block that runs. */
static void block_runs(unsigned int number, void *data)
{
	struct block *block = data;
	struct cpu *cpu;
	struct held *held;

	if (!open_parts)
		return;
	cpu = this_cpu();
	held = &cpu->held[cpu->depth ? cpu->depth - 1 : 0];
	/* Back from the function that takes the lock: it is taken. */
	if (cpu->depth && held->is_waiting && held->caller == block->addr) {
		held->is_waiting = false;
		held->start = cpu->insns;
		held->irq_insns = cpu->irq_insns;
	}
	cpu->insns += block->insns;
	if (!cpu->window)
		return;
	if (!block->times)
		block->times = zalloc(MAX_WINDOWS * sizeof(*block->times));
	block->times[cpu->window - 1]++;
}

static void part_begins(struct cpu *cpu)
{
	if (cpu->window)
		fail("a part begins in another");
	last_window = window_begins();
	cpu->window = last_window + 1;
	open_parts++;
}

static void lock_released(struct cpu *cpu, uint64_t lock)
{
	struct holds *h, **bucket;
	struct held held;
	uint64_t insns, irq;
	int i;

	for (i = cpu->depth; i-- > 0;) {
		if (cpu->held[i].lock == lock)
			break;
	}
	if (i < 0)
		return;
	held = cpu->held[i];
	memmove(&cpu->held[i], &cpu->held[i + 1], (cpu->depth - i - 1) * sizeof(held));
	cpu->depth--;
	if (!cpu->window)
		return;
	insns = cpu->insns - held.start;
	irq = cpu->irq_insns - held.irq_insns;
	insns -= irq < insns ? irq : insns;
	bucket = &all_holds[(held.lock / 8 * 31 + held.caller / 4 * 17 + cpu->window) % HOLD_BUCKETS];
	for (h = *bucket; h; h = h->next) {
		if (h->lock == lock && h->caller == held.caller && h->window == cpu->window - 1)
			break;
	}
	if (!h) {
		h = zalloc(sizeof(*h));
		h->next = *bucket;
		h->window = cpu->window - 1;
		h->lock = lock;
		h->caller = held.caller;
		*bucket = h;
	}
	h->times++;
	h->insns += insns;
	if (insns > h->longest)
		h->longest = insns;
}

/* From now on nothing is seen: locks may be released. */
static void forget_locks(void)
{
	int i;

	for (i = 0; i < MAX_CPUS; i++) {
		cpus[i].depth = 0;
		cpus[i].in_irq = false;
	}
}

/* Called when the first instruction of a hooked function runs. */
static void hook_runs(unsigned int number, void *data)
{
	struct hook *hook = data;
	struct cpu *cpu;

	/* What was locked before a part began does not count. */
	if (!open_parts && hook->kind != HOOK_BEGIN)
		return;
	cpu = this_cpu();
	switch (hook->kind) {
	case HOOK_BEGIN:
		part_begins(cpu);
		break;
	case HOOK_END:
		if (!cpu->window)
			fail("a part ends that has not begun");
		cpu->window = 0;
		if (!--open_parts)
			forget_locks();
		break;
	case HOOK_LOCK:
		if (cpu->depth == MAX_DEPTH) {
			/* Locks that were taken elsewhere than they were released. */
			memmove(cpu->held, cpu->held + 1, (MAX_DEPTH - 1) * sizeof(cpu->held[0]));
			cpu->depth--;
		}
		cpu->held[cpu->depth++] = (struct held) {
			.lock = read_register(args[0]), .caller = read_register(link_register),
			.start = cpu->insns, .irq_insns = cpu->irq_insns,
			.is_waiting = true,
		};
		break;
	case HOOK_UNLOCK:
		lock_released(cpu, read_register(args[0]));
		break;
	case HOOK_IRQ:
		/* With a lock held, the same task goes on afterwards. */
		if (cpu->depth && !cpu->in_irq) {
			cpu->in_irq = true;
			cpu->irq_start = cpu->insns;
		}
		break;
	case HOOK_RET:
		if (cpu->in_irq)
			cpu->irq_insns += cpu->insns - cpu->irq_start;
		cpu->in_irq = false;
		break;
	}
}

static void tlbi_runs(unsigned int number, void *data)
{
	struct cpu *cpu;

	if (!open_parts)
		return;
	cpu = this_cpu();
	if (!cpu->in_flush)
		flushes[last_window]++;
	cpu->in_flush = true;
}

static void dsb_runs(unsigned int number, void *data)
{
	if (open_parts)
		this_cpu()->in_flush = false;
}

/* The block of this address and length; blocks are translated again and again. */
static struct block *find_block(uint64_t addr, uint32_t insns)
{
	struct block **bucket = &blocks[(addr / 4 * 31 + insns) % BUCKETS], *block;

	for (block = *bucket; block; block = block->next) {
		if (block->addr == addr && block->insns == insns)
			return block;
	}
	block = zalloc(sizeof(*block));
	block->next = *bucket;
	block->addr = addr;
	block->insns = insns;
	*bucket = block;
	return block;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb), i;
	struct kinds kinds = {};
	struct block *block;

	for (i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint32_t word = 0;

		qemu_plugin_insn_data(insn, &word, sizeof(word));
		classify(word, &kinds);
		if (is_dsb(word) || is_tlbi(word))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, is_dsb(word) ? dsb_runs : tlbi_runs,
							       QEMU_PLUGIN_CB_NO_REGS, NULL);
		register_hooks(insn, hook_runs);
	}
	block = find_block(qemu_plugin_tb_vaddr(tb), n);
	/* The kernel changes its code while it boots, not in a measured part. */
	block->kinds = kinds;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, block_runs, QEMU_PLUGIN_CB_NO_REGS, block);
}

static void cpu_begins(qemu_plugin_id_t id, unsigned int number)
{
	static const char *const names[] = { "x0", "x1", "x2", "x30", "TPIDR_EL1" };
	struct qemu_plugin_register **wanted[] = {
		&args[0], &args[1], &args[2], &link_register, &identity_register,
	};

	find_registers(names, wanted, 5);
}

static void write_counts(qemu_plugin_id_t id, void *data)
{
	FILE *out = begin_file();
	struct block *block;
	struct holds *h;
	int i, w;

	for (w = 0; w < n_windows; w++) {
		write_window(out, w);
		fprintf(out, "flush %d %" PRIu64 "\n", w, flushes[w]);
	}
	for (i = 0; i < BUCKETS; i++) {
		for (block = blocks[i]; block; block = block->next) {
			for (w = 0; block->times && w < n_windows; w++) {
				if (!block->times[w])
					continue;
				fprintf(out, "block %d %" PRIx64 " %u %u %u %u %u %" PRIu64 "\n", w,
					block->addr, block->insns, block->kinds.rmw,
					block->kinds.barriers, block->kinds.ordered,
					block->kinds.tlbi, block->times[w]);
			}
		}
	}
	for (i = 0; i < HOLD_BUCKETS; i++) {
		for (h = all_holds[i]; h; h = h->next)
			fprintf(out, "hold %d %" PRIx64 " %" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
				h->window, h->lock, h->caller, h->times, h->insns, h->longest);
	}
	end_file(out);
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
					   int argc, char **argv)
{
	static const char *const kinds[] = {
		"begin=", "end=", "lock=", "unlock=", "irq=", "ret=",
	};
	bool is_good = true;
	int i;

	if (strcmp(info->target_name, "aarch64")) {
		fprintf(stderr, "count: error: knows aarch64, not %s\n", info->target_name);
		return -1;
	}
	n_cpus = info->system.max_vcpus;
	for (i = 0; i < argc; i++)
		is_good &= add_argument(argv[i], kinds, sizeof(kinds) / sizeof(kinds[0]));
	if (!is_good || !out_path) {
		fprintf(stderr, "count: error: wrong arguments; see bench/plugin/count.c\n");
		return -1;
	}
	qemu_plugin_register_vcpu_init_cb(id, cpu_begins);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, write_counts, NULL);
	return 0;
}
