// SPDX-License-Identifier: GPL-2.0
/*
 * Keeps many BPF programs and arrays, as an agent that observes a node does: attach NUMBER
 *
 * Loads the programs, makes an array of 16 KiB for each, attaches each program to a socket, and
 * closes all.
 */
#include <linux/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As in linux/bpf.h, which tcc cannot read, and asm-generic/socket.h. */
enum { MAP_CREATE = 0, PROG_LOAD = 5, MAP_ARRAY = 2, SOCKET_FILTER = 1 };
#ifndef SO_ATTACH_BPF
#define SO_ATTACH_BPF 50
#endif
enum { MOST = 1000, INSNS = 200, ARRAY_BYTES = 16384 };

static int load_program(void)
{
	static __u64 insns[INSNS];
	struct {
		__u32 type, insn_cnt;
		__u64 insns, license;
	} attr = { SOCKET_FILTER, INSNS, (unsigned long)insns, (unsigned long)"GPL" };
	int i;

	/* r0 = 0; r0 += 1, many times; exit */
	for (i = 0; i < INSNS - 1; i++)
		insns[i] = i ? 0x100000007ULL : 0xb7;
	insns[i] = 0x95;
	return syscall(SYS_bpf, PROG_LOAD, &attr, sizeof(attr));
}

static int create_array(void)
{
	struct {
		__u32 type, key_size, value_size, max_entries, flags;
	} attr = { MAP_ARRAY, 4, 8, ARRAY_BYTES / 8, 0 };

	return syscall(SYS_bpf, MAP_CREATE, &attr, sizeof(attr));
}

int main(int argc, char **argv)
{
	static int progs[MOST], maps[MOST], socks[MOST];
	int i, n = argc == 2 ? atoi(argv[1]) : 0;

	if (n < 1 || n > MOST)
		return 1;
	for (i = 0; i < n; i++) {
		progs[i] = load_program();
		maps[i] = create_array();
		socks[i] = socket(AF_INET, SOCK_DGRAM, 0);
		if (progs[i] < 0 || maps[i] < 0 || socks[i] < 0 ||
		    setsockopt(socks[i], SOL_SOCKET, SO_ATTACH_BPF, &progs[i], sizeof(int))) {
			perror("attach");
			return 1;
		}
	}
	for (i = 0; i < n; i++) {
		close(socks[i]);
		close(maps[i]);
		close(progs[i]);
	}
	return 0;
}
