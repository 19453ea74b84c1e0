// SPDX-License-Identifier: GPL-2.0
/*
 * Creates and closes BPF objects:
 * bpfmaps array TIMES [BYTES]   an array, without BYTES a small one that can be mapped
 * bpfmaps ringbuf TIMES BYTES   a ring buffer
 * bpfmaps prog TIMES            a program
 */
#include <linux/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As in linux/bpf.h, which tcc cannot read. */
enum { MAP_CREATE = 0, PROG_LOAD = 5, MAP_ARRAY = 2, MAP_RINGBUF = 27, SOCKET_FILTER = 1 };
enum { MAPPABLE = 0x400 };

struct map_attr {
	__u32 type;
	__u32 key_size;
	__u32 value_size;
	__u32 max_entries;
	__u32 flags;
};

struct prog_attr {
	__u32 type;
	__u32 insn_cnt;
	__u64 insns;
	__u64 license;
};

/* 0: one that can be mapped into a process, which has always whole pages. */
static int create_array(int bytes)
{
	struct map_attr attr = {
		.type = MAP_ARRAY, .key_size = 4, .value_size = 8,
		.max_entries = bytes ? bytes / 8 : 64, .flags = bytes ? 0 : MAPPABLE,
	};

	return syscall(SYS_bpf, MAP_CREATE, &attr, sizeof(attr));
}

static int create_ringbuf(int bytes)
{
	struct map_attr attr = { .type = MAP_RINGBUF, .max_entries = bytes };

	return syscall(SYS_bpf, MAP_CREATE, &attr, sizeof(attr));
}

static int load_program(void)
{
	/* r0 = 0; exit */
	static const __u64 insns[] = { 0xb7, 0x95 };
	struct prog_attr attr = {
		.type = SOCKET_FILTER, .insn_cnt = 2, .insns = (unsigned long)insns,
		.license = (unsigned long)"GPL",
	};

	return syscall(SYS_bpf, PROG_LOAD, &attr, sizeof(attr));
}

int main(int argc, char **argv)
{
	int i, fd, bytes = argc == 4 ? atoi(argv[3]) : 0;

	if (argc < 3)
		return 1;
	for (i = atoi(argv[2]); i; i--) {
		if (!strcmp(argv[1], "ringbuf"))
			fd = create_ringbuf(bytes);
		else if (!strcmp(argv[1], "prog"))
			fd = load_program();
		else
			fd = create_array(bytes);
		if (fd < 0) {
			perror("bpfmaps");
			return 1;
		}
		close(fd);
	}
	return 0;
}
