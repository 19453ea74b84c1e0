// SPDX-License-Identifier: GPL-2.0
/*
 * What bpftool loads: a program, an array and two ring buffers.
 * The build host compiles it; harness/bench/programs.py defines SEC().
 */

/* As in include/uapi/linux/bpf.h. */
enum { MAP_ARRAY = 2, MAP_RINGBUF = 27 };

static void *(*lookup)(void *map, const void *key) = (void *)1;
static long (*output)(void *ring, void *data, unsigned long size,
		      unsigned long flags) = (void *)130;

struct {
	int (*type)[MAP_ARRAY];
	int (*max_entries)[1024];
	int *key;
	long *value;
} counts SEC(".maps");

struct {
	int (*type)[MAP_RINGBUF];
	int (*max_entries)[64 << 10];
} small SEC(".maps");

struct {
	int (*type)[MAP_RINGBUF];
	int (*max_entries)[8 << 20];
} large SEC(".maps");

SEC("socket") int filter(void *packet)
{
	int key = 0;
	long *count = lookup(&counts, &key);

	if (count) {
		output(&small, count, sizeof(*count), 0);
		output(&large, count, sizeof(*count), 0);
	}
	return 0;
}

char _license[] SEC("license") = "GPL";
