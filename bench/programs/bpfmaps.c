// SPDX-License-Identifier: GPL-2.0
/*
 * Creates and closes BPF objects:
 * bpfmaps array TIMES [BYTES]   an array, without BYTES a small one that can be mapped
 * bpfmaps ringbuf TIMES BYTES   a ring buffer
 * bpfmaps prog TIMES            a program
 * bpfmaps agent NUMBER          that many programs, each attached to a socket, and arrays at once,
 *                               as an agent has them that observes a node
 */
#include <linux/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As in linux/bpf.h, which tcc cannot read. */
enum { MAP_CREATE = 0, PROG_LOAD = 5, MAP_ARRAY = 2, MAP_RINGBUF = 27, SOCKET_FILTER = 1 };
/* ATTACH_BPF: as in asm-generic/socket.h. */
enum { MAPPABLE = 0x400, ATTACH_BPF = 50 };
enum { MOST = 1000, MOST_INSNS = 200 };

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

/* Of two instructions or more. */
static int load_program(int number)
{
	static __u64 insns[MOST_INSNS];
	struct prog_attr attr = {
		.type = SOCKET_FILTER, .insn_cnt = number, .insns = (unsigned long)insns,
		.license = (unsigned long)"GPL",
	};
	int i;

	/* r0 = 0; r0 += 1, as often as there is room; exit */
	for (i = 0; i < number - 1; i++)
		insns[i] = i ? 0x100000007ULL : 0xb7;
	insns[i] = 0x95;
	return syscall(SYS_bpf, PROG_LOAD, &attr, sizeof(attr));
}

static int agent(int number)
{
	static int fds[3 * MOST];
	int i;

	if (number > MOST)
		return 1;
	for (i = 0; i < 3 * number; i += 3) {
		fds[i] = socket(AF_INET, SOCK_DGRAM, 0);
		fds[i + 1] = create_array(16384);
		fds[i + 2] = load_program(MOST_INSNS);
		if (fds[i] < 0 || fds[i + 1] < 0 || fds[i + 2] < 0 ||
		    setsockopt(fds[i], SOL_SOCKET, ATTACH_BPF, &fds[i + 2], sizeof(int))) {
			perror("bpfmaps");
			return 1;
		}
	}
	for (i = 0; i < 3 * number; i++)
		close(fds[i]);
	return 0;
}

int main(int argc, char **argv)
{
	int i, fd, bytes = argc == 4 ? atoi(argv[3]) : 0;

	if (argc < 3)
		return 1;
	if (!strcmp(argv[1], "agent"))
		return agent(atoi(argv[2]));
	for (i = atoi(argv[2]); i; i--) {
		if (!strcmp(argv[1], "ringbuf"))
			fd = create_ringbuf(bytes);
		else if (!strcmp(argv[1], "prog"))
			fd = load_program(2);
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
