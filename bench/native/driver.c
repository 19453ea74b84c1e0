// SPDX-License-Identifier: GPL-2.0
/* Runs the cases on all sides, each in a process of its own, and prints JSON. */
#include <ctype.h>
#include <dirent.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "about.h"
#include "driver.h"

static struct side *const sides[] = { &side_rbtree, &side_rust, &side_calls };
/* Live areas of mixed_1m; to check a million takes too long. */
#ifdef CHECK
#define MILLION 20000
#else
#define MILLION 1000000
#endif
enum { NR_SIDES = 3, MOST_PASSES = 1000 };
/* Another program disturbs a pass if the threads have their CPUs for a smaller part of it. */
#define HAD_CPU 0.97

static const struct {
	const char *name, *what;
	/* Areas of a page or more that are live meanwhile, of each worker or of all. */
	unsigned int live_each, live_all;
	bool finds, one_worker, two_workers;
} cases[NR_CASES] = {
	[AREA_PAIR] = { "area_pair", "get_vm_area() and free_vm_area() of one page" },
	[AREA_COLD] = { "area_cold", "the same, after 2 MiB of other memory were written", .one_worker = true },
	[AREA_4] = { "area_4", "of 4 pages" },
	[AREA_64] = { "area_64", "of 64 pages" },
	[AREA_REMOTE] = { "area_remote", "of one page; workers free each other's through a line of 8 slots" },
	[MIXED_1K] = { "mixed_1k", "each worker replaces one of its 1,000 areas by one of another size", 1000 },
	[MIXED_1M] = { "mixed_1m", "the same with a million areas of all workers", 0, MILLION },
	[FIND_1K] = { "find_1k", "find an inner address of 1,000 areas of 64 pages", .finds = true },
	[FIND_1K_WRITER] = { "find_1k_writer", "the same while another worker makes pairs of one page",
			     .finds = true, .two_workers = true },
	[PURGE_512] = { "purge_512", "purge 512 freed areas of one page", 512, .one_worker = true },
};

/* Options. */
static int passes = 9;
static double ms = 20;
static unsigned long nr_each = 1000000;
static bool wanted[NR_CASES];
static unsigned int thread_counts[64], nr_thread_counts;
static struct side *only_side;

/* CPUs of the machine that this process may use, and the test that runs. */
static int cpu_ids[NR_CPUS];
static unsigned int threads, this_case;
/* A tick, and the least time between two looks at the clock. */
static double ns_of_tick, ns_of_fences;
static struct worker *workers[NR_SIDES];
static pthread_barrier_t barrier;
static unsigned int arrived;

/* What all threads do next. */
static struct {
	enum { FILL, MEAN, EACH, EMPTY, PING, END } what;
	int side;
	unsigned int partner;
} next;

#ifdef CHECK
static unsigned long *pages_of[NR_SIDES];
static __thread int checked_side;
#define NR_PAGES ((VMALLOC_END - VMALLOC_START) / PAGE_SIZE)

static void flip(struct vm_struct *vm, bool owned)
{
	unsigned long page = ((unsigned long)vm->addr - VMALLOC_START) / PAGE_SIZE;
	unsigned long nr = vm->size / PAGE_SIZE;

	if ((unsigned long)vm->addr < VMALLOC_START || page + nr > NR_PAGES)
		broken("an area is outside");
	for (; nr--; page++) {
		unsigned long bit = 1UL << page % 64, *word = &pages_of[checked_side][page / 64];

		if (owned && __atomic_fetch_or(word, bit, __ATOMIC_RELAXED) & bit)
			broken("two areas overlap");
		if (!owned && !(__atomic_fetch_and(word, ~bit, __ATOMIC_RELAXED) & bit))
			broken("a freed page was free");
	}
}

void mark_area(struct vm_struct *vm, unsigned long pages, struct vm_struct *(*find)(unsigned long))
{
	if (vm->size != (pages + 1) * PAGE_SIZE || vm->requested_size != pages * PAGE_SIZE)
		broken("an area has another size");
	flip(vm, true);
	if (find((unsigned long)vm->addr + vm->size / 2) != vm)
		broken("an area is not the one at its address");
}

void unmark_area(struct vm_struct *vm)
{
	flip(vm, false);
}
#endif

/* All threads leave at once: the barrier alone wakes them one by one. */
static void rendezvous(void)
{
	pthread_barrier_wait(&barrier);
	__atomic_add_fetch(&arrived, 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(&arrived, __ATOMIC_ACQUIRE) < threads)
		cpu_relax();
}

/* A cache line goes to the partner and back; the quickest of some rounds, as a thread may lose its CPU in one. */
static unsigned long ball __attribute__((aligned(128)));
static double ping_ns;
enum { ROUNDS = 5, PINGS = 64 };

static void ping(unsigned int partner)
{
	if (cpu_number && cpu_number != partner)
		return;
	if (!cpu_number)
		ping_ns = 1e12;
	for (int round = 0; round < ROUNDS; round++) {
		double start = now_ns(), ns;

		for (int i = 0; i < PINGS; i++) {
			while ((__atomic_load_n(&ball, __ATOMIC_ACQUIRE) & 1) != !!cpu_number)
				cpu_relax();
			__atomic_store_n(&ball, ball + 1, __ATOMIC_RELEASE);
		}
		ns = (now_ns() - start) / PINGS;
		if (!cpu_number && ns < ping_ns)
			ping_ns = ns;
	}
}

static void fill(struct worker *w, struct side *side)
{
	if (cases[this_case].finds || this_case == PURGE_512)
		return;
	for (unsigned long i = 0; i < w->nr_live; i++) {
		w->live[i] = checked_get(side->get, side->find, random_pages(w));
		poll();
	}
}

static void empty(struct worker *w, struct side *side)
{
	for (unsigned long i = 0; i < w->nr_live; i++) {
		if (w->live[i])
			checked_put(side->put, w->live[i]);
		w->live[i] = NULL;
		poll();
	}
	for (int i = 0; !cpu_number && w->ring && i < RING; i++) {
		if (w->ring[i])
			checked_put(side->put, w->ring[i]);
		w->ring[i] = NULL;
	}
}

static void timed(loop_fn loop, struct worker *w)
{
	double wall = now_ns(), cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);

	loop(w);
	cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
	w->had_cpu = cpu / (now_ns() - wall);
}

/* Does what main has put into @next, as one thread of all. */
static void step(void)
{
	struct worker *w = &workers[next.side][cpu_number];
	struct side *side = sides[next.side];
	/* One makes pairs while the others look up. */
	bool writes = this_case == FIND_1K_WRITER && !cpu_number;
	loop_fn loop = side->loop[writes ? AREA_PAIR : this_case][next.what == EACH];

#ifdef CHECK
	checked_side = next.side;
#endif
	if (next.what == PING) {
		ping(next.partner);
		return;
	}
	rcu_online();
	if (next.what == FILL)
		fill(w, side);
	else if (next.what == EMPTY)
		empty(w, side);
	else
		timed(loop, w);
	rcu_offline();
}

static void pin(unsigned int cpu)
{
	cpu_set_t *set = CPU_ALLOC(1 << 16);

	CPU_ZERO_S(CPU_ALLOC_SIZE(1 << 16), set);
	CPU_SET_S(cpu_ids[cpu], CPU_ALLOC_SIZE(1 << 16), set);
	if (sched_setaffinity(0, CPU_ALLOC_SIZE(1 << 16), set))
		broken("sched_setaffinity()");
	CPU_FREE(set);
	cpu_number = cpu;
}

static void *thread(void *cpu)
{
	pin((unsigned long)cpu);
	for (;;) {
		rendezvous();
		if (next.what == END)
			return NULL;
		step();
		pthread_barrier_wait(&barrier);
	}
}

static pthread_t others[NR_CPUS];

static void start_threads(void)
{
	pthread_barrier_init(&barrier, NULL, threads);
	for (unsigned int t = 1; t < threads; t++)
		if (pthread_create(&others[t], NULL, thread, (void *)(unsigned long)t))
			broken("pthread_create()");
}

static void all_do(int what, int side, unsigned int partner)
{
	next.what = what;
	next.side = side;
	next.partner = partner;
	__atomic_store_n(&arrived, 0, __ATOMIC_RELAXED);
	rendezvous();
	if (what == END)
		return;
	step();
	pthread_barrier_wait(&barrier);
}

/* Returns the mean of the pings between the first thread and each other one. */
static double ping_all(void)
{
	double sum = 0;

	for (unsigned int partner = 1; partner < threads; partner++) {
		all_do(PING, 0, partner);
		sum += ping_ns;
	}
	return threads > 1 ? sum / (threads - 1) : 0;
}

static int by_ticks(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Prints what each operation took: of all workers whose case this is. */
static void print_each(FILE *out, struct worker *w, unsigned long nr)
{
	static uint32_t *all;
	unsigned int first = this_case == FIND_1K_WRITER;
	unsigned long n = 0;

	all = all ?: malloc(sizeof(*all) * nr * threads);
	for (unsigned int t = first; t < threads; n += w[t++].nr_each)
		memcpy(&all[n], w[t].each, sizeof(*all) * w[t].nr_each);
	qsort(all, n, sizeof(*all), by_ticks);
#define AT(part) ({ double ns_ = all[(unsigned long)((n - 1) * (part))] * ns_of_tick - ns_of_fences; ns_ > 0 ? ns_ : 0; })
	fprintf(out, ", \"p50\": %.1f, \"p99.9\": %.1f, \"max\": %.1f", AT(0.5), AT(0.999), AT(1));
}

static void find_ns_of_fences(void)
{
	uint64_t least = ~0ul;

	for (int i = 0; i < 10000; i++) {
		uint64_t start = ticks(), spent = ticks() - start;

		least = spent < least ? spent : least;
	}
	ns_of_fences = least * ns_of_tick;
}

/* Prints a pass of a side. Returns the part of the time for which all threads had their CPUs. */
static double print_pass(FILE *out, int pass, int s)
{
	struct worker *w = workers[s];
	unsigned int first = this_case == FIND_1K_WRITER;
	double before = ping_all(), after, ns = 0, rate = 0, had_cpu = 1;

	all_do(MEAN, s, 0);
	after = ping_all();
	for (unsigned int t = first; t < threads; t++) {
		ns += w[t].ns * w[t].had_cpu / w[t].ops / (threads - first);
		rate += w[t].ops / w[t].ns * 1e9;
	}
	for (unsigned int t = 0; t < threads; t++)
		had_cpu = w[t].had_cpu < had_cpu ? w[t].had_cpu : had_cpu;
	all_do(EACH, s, 0);
	if (pass < 0)
		return 0;
	fprintf(out, "%s\n    {\"side\": \"%s\", \"cost\": %.3f, \"rate\": %.0f, \"had_cpu\": %.3f", pass || s != 0 ? "," : "",
		sides[s]->name, ns, rate, had_cpu);
	if (first)
		fprintf(out, ", \"writer\": %.3f", w[0].ns * w[0].had_cpu / w[0].ops);
	if (threads > 1)
		fprintf(out, ", \"ping\": [%.1f, %.1f]", before, after);
	print_each(out, w, w[0].nr_each);
	fprintf(out, "}");
	return had_cpu;
}

static void *zeroed(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		broken("no memory");
	return memory;
}

/* 1,000 areas, and inner addresses of them in random order. */
static const unsigned long *make_inner(struct worker *w, struct side *side)
{
	unsigned long *inner = zeroed(INNER * sizeof(*inner));

	for (int i = 0; i < 1000; i++)
		w->live[i] = checked_get(side->get, side->find, 64);
	for (int i = 0; i < INNER; i++)
		inner[i] = (unsigned long)w->live[next_random(w) % 1000]->addr +
			   next_random(w) % (64 * PAGE_SIZE);
	return inner;
}

static void make_workers(int s)
{
	struct vm_struct **ring = this_case == AREA_REMOTE ? zeroed(PAGE_SIZE) : NULL;
	bool finds = cases[this_case].finds;

	workers[s] = zeroed(sizeof(struct worker) * threads);
	for (unsigned int t = 0; t < threads; t++) {
		struct worker *w = &workers[s][t];

		*w = (struct worker){ .random = 12345 + t, .at = 7919 * t, .ms = ms, .ring = ring,
				      .ns_of_tick = ns_of_tick, .ns_of_fences = ns_of_fences };
		w->nr_each = nr_each / passes / threads + 1;
		if (this_case == PURGE_512 || this_case == AREA_COLD)
			w->nr_each = w->nr_each / 512 + 1;
		if (this_case == AREA_COLD)
			w->others = zeroed(OTHERS);
		w->each = zeroed(sizeof(*w->each) * w->nr_each);
		w->nr_live = finds ? 1000 * !t : cases[this_case].live_each ?: cases[this_case].live_all / threads;
		w->live = zeroed(sizeof(*w->live) * (w->nr_live + 1));
		w->inner = finds && !t ? make_inner(w, sides[s]) : workers[s][0].inner;
	}
}

/* Runs one case with one number of threads, in a process of its own. */
static void run_test(FILE *out)
{
	int disturbed = 0;

	pin(0);
	find_ns_of_fences();
	for (int s = 0; s < NR_SIDES; s++) {
#ifdef CHECK
		checked_side = s;
		pages_of[s] = zeroed(NR_PAGES / 8 + 8);
#endif
		sides[s]->init();
		make_workers(s);
	}
	start_threads();
	for (int s = 0; s < NR_SIDES; s++)
		all_do(FILL, s, 0);
	fprintf(out, "{\"case\": \"%s\", \"threads\": %u, \"passes\": [", cases[this_case].name, threads);
	/* The first pass does not count; the side that begins alternates. Disturbed passes are repeated. */
	for (int pass = -1; pass < passes + disturbed && disturbed <= passes; pass++) {
		double had_cpu = 1;

		for (int i = 0; i < NR_SIDES; i++) {
			double part = print_pass(out, pass, pass > 0 && pass & 1 ? NR_SIDES - 1 - i : i);

			had_cpu = part < had_cpu ? part : had_cpu;
		}
		disturbed += pass >= 0 && had_cpu < HAD_CPU;
	}
	for (int s = 0; s < NR_SIDES; s++)
		all_do(EMPTY, s, 0);
	all_do(END, 0, 0);
	for (unsigned int t = 1; t < threads; t++)
		pthread_join(others[t], NULL);
	fprintf(out, "],\n   \"flushes\": {");
	for (int s = 0; s < NR_SIDES; s++) {
		sides[s]->purge(true);
		rcu_barrier();
		sides[s]->check();
		fprintf(out, "%s\"%s\": %lu", s ? ", " : "", sides[s]->name, sides[s]->flushes);
	}
	fprintf(out, "}}");
	fflush(out);
}

/* For a profiler: one side of one case, with one thread or more, and nothing else. */
static void run_profile(struct side *side)
{
	struct worker *w;
	int s = 0;

	while (sides[s] != side)
		s++;
	pin(0);
	find_ns_of_fences();
	side->init();
	make_workers(s);
	start_threads();
	all_do(FILL, s, 0);
	all_do(MEAN, s, 0);
	w = &workers[s][threads - 1];
	printf("%s %s: %.1f ns\n", cases[this_case].name, side->name,
	       w->ns * w->had_cpu / w->ops);
	exit(0);
}

static void print_text(FILE *out, const char *name, const char *text)
{
	fprintf(out, "\"%s\": \"", name);
	for (; *text && *text != '\n'; text++)
		if (*text != '"' && *text != '\\' && isprint((unsigned char)*text))
			fputc(*text, out);
	fputc('"', out);
}

static bool read_line(const char *path, const char *key, char *line, size_t size)
{
	FILE *file = fopen(path, "r");
	bool found = false;

	while (file && !found && fgets(line, size, file))
		found = !strncmp(line, key, strlen(key));
	if (file)
		fclose(file);
	return found;
}

static void print_machine(FILE *out)
{
	const char *folder = "/sys/devices/system/cpu/vulnerabilities";
	char line[1024] = "", path[600];
	DIR *dir = opendir(folder);
	const char *comma = "";
	struct dirent *entry;

	fprintf(out, "{\"format\": 1, \"had_cpu\": %.2f, ", HAD_CPU);
	print_text(out, "linux", NATIVE_LINUX);
	fprintf(out, ", ");
	print_text(out, "commit", NATIVE_COMMIT);
	fprintf(out, ", ");
	print_text(out, "compilers", NATIVE_COMPILERS);
	read_line("/proc/cpuinfo", "model name", line, sizeof(line));
	fprintf(out, ",\n \"machine\": {");
	print_text(out, "cpu", strchr(line, ':') ? strchr(line, ':') + 2 : "unknown");
	fprintf(out, ", \"cores\": %u, ", nr_cpu_ids);
	line[0] = 0;
	read_line("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "", line, sizeof(line));
	print_text(out, "siblings", line);
	fprintf(out, ", \"hypervisor\": %s, \"mitigations\": {",
		read_line("/proc/cpuinfo", "flags", line, sizeof(line)) && strstr(line, " hypervisor") ? "true" : "false");
	while (dir && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		if (entry->d_name[0] == '.' || !read_line(path, "", line, sizeof(line)))
			continue;
		fprintf(out, "%s", comma);
		print_text(out, entry->d_name, line);
		comma = ", ";
	}
	if (dir)
		closedir(dir);
	fprintf(out, "}},\n \"tests\": [");
}

static void refuse(const char *what, const char *value)
{
	fprintf(stderr, "native: error: %s %s; see --help\n", what, value);
	exit(1);
}

static void want_cases(char *list)
{
	for (char *name = strtok(list, ","); name; name = strtok(NULL, ",")) {
		int c = 0;

		while (c < NR_CASES && strcmp(cases[c].name, name))
			c++;
		if (c == NR_CASES)
			refuse("unknown case", name);
		wanted[c] = true;
	}
}

static unsigned long number(const char *option, const char *text, unsigned long most)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (!isdigit((unsigned char)*text) || *end || !n || n > most)
		refuse(option, text);
	return n;
}

static void want_threads(char *list)
{
	for (char *n = strtok(list, ","); n && nr_thread_counts < 64; n = strtok(NULL, ","))
		thread_counts[nr_thread_counts++] = number("--threads must be numbers from 1 to that of the CPUs, not",
							   n, nr_cpu_ids);
}

static void help(void)
{
	printf("usage: native [OPTION...]\n\n"
	       "Measures the vmap area allocators of Linux in user space, and prints JSON.\n"
	       "With --side: runs only this side of the cases, for a profiler.\n\n"
	       "  --cases LIST      of the cases below (default: all)\n"
	       "  --threads LIST    numbers of threads (default: 1, 2, 4 ... all CPUs)\n"
	       "  --passes N        passes of each side (default: 9)\n"
	       "  --ms N            milliseconds of a pass (default: 20)\n"
	       "  --each N          operations that are timed one by one (default: 1000000)\n"
	       "  --side SIDE       rbtree, rust or calls (rust with helpers as functions)\n"
	       "  --output FILE     where JSON goes (default: stdout)\n\n");
	for (int c = 0; c < NR_CASES; c++)
		printf("  %-16s  %s\n", cases[c].name, cases[c].what);
	exit(0);
}

static void find_cpus(void)
{
	cpu_set_t *set = CPU_ALLOC(1 << 16);

	if (sched_getaffinity(0, CPU_ALLOC_SIZE(1 << 16), set))
		broken("sched_getaffinity()");
	nr_cpu_ids = 0;
	for (int cpu = 0; cpu < 1 << 16 && nr_cpu_ids < NR_CPUS; cpu++)
		if (CPU_ISSET_S(cpu, CPU_ALLOC_SIZE(1 << 16), set))
			cpu_ids[nr_cpu_ids++] = cpu;
	CPU_FREE(set);
}

static void find_ns_of_tick(void)
{
	double start = now_ns();
	uint64_t first = ticks();

	while (now_ns() - start < 5e7)
		;
	ns_of_tick = (now_ns() - start) / (ticks() - first);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "cases", 1, NULL, 'c' }, { "threads", 1, NULL, 't' }, { "passes", 1, NULL, 'p' },
		{ "ms", 1, NULL, 'm' }, { "each", 1, NULL, 'e' }, { "side", 1, NULL, 's' },
		{ "output", 1, NULL, 'o' }, { "help", 0, NULL, 'h' }, { } };
	int option, status;
	FILE *out = stdout;
	const char *comma = "";

	find_cpus();
	opterr = 0;
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'c': want_cases(optarg); break;
		case 't': want_threads(optarg); break;
		case 'p': passes = number("--passes must be a number from 1 to 1000, not", optarg, MOST_PASSES); break;
		case 'm': ms = number("--ms must be a number from 1 to 100000, not", optarg, 100000); break;
		case 'e': nr_each = number("--each must be a number from 1 to 100000000, not", optarg, 100000000); break;
		case 's':
			for (int s = 0; s < NR_SIDES; s++)
				only_side = strcmp(sides[s]->name, optarg) ? only_side : sides[s];
			if (!only_side)
				refuse("unknown side", optarg);
			break;
		case 'o':
			out = fopen(optarg, "w");
			if (!out)
				refuse("cannot write", optarg);
			break;
		case 'h': help();
		default: refuse("wrong option", argv[optind - 1]);
		}
	}
	if (optind < argc)
		refuse("wrong argument", argv[optind]);
	if (!nr_thread_counts) {
		for (unsigned int n = 1; n < nr_cpu_ids; n *= 2)
			thread_counts[nr_thread_counts++] = n;
		thread_counts[nr_thread_counts++] = nr_cpu_ids;
	}
	find_ns_of_tick();
	if (!only_side)
		print_machine(out);
	for (this_case = 0; this_case < NR_CASES; this_case++) {
		if (!wanted[this_case] && memchr(wanted, true, sizeof(wanted)))
			continue;
		for (unsigned int i = 0; i < nr_thread_counts; i++) {
			threads = thread_counts[i];
			if ((threads > 1 && cases[this_case].one_worker) ||
			    (threads < 2 && cases[this_case].two_workers))
				continue;
			if (only_side)
				run_profile(only_side);
			fprintf(stderr, "%s, %u threads\n", cases[this_case].name, threads);
			fprintf(out, "%s\n   ", comma);
			comma = ",";
			fflush(out);
			if (!fork()) {
				run_test(out);
				exit(0);
			}
			wait(&status);
			if (status) {
				/* Its output may end anywhere. */
				fprintf(stderr, "native: error: %s with %u threads ended with %d\n", cases[this_case].name,
					threads, WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
				return 1;
			}
		}
	}
	if (!only_side)
		fprintf(out, "]}\n");
	return fclose(out) != 0;
}
