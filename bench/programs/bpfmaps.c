// SPDX-License-Identifier: GPL-2.0
/*
 * Creates and closes BPF objects:
 * bpfmaps array TIMES           an array that can be mapped
 * bpfmaps ringbuf TIMES BYTES   a ring buffer
 * bpfmaps prog TIMES            a program
 */
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int create_array(void)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.map_type = BPF_MAP_TYPE_ARRAY;
	attr.key_size = 4;
	attr.value_size = 8;
	attr.max_entries = 64;
	attr.map_flags = BPF_F_MMAPABLE;
	return bpf(BPF_MAP_CREATE, &attr);
}

static int create_ringbuf(int bytes)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.map_type = BPF_MAP_TYPE_RINGBUF;
	attr.max_entries = bytes;
	return bpf(BPF_MAP_CREATE, &attr);
}

static int load_program(void)
{
	static const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
	attr.insns = (unsigned long)insns;
	attr.insn_cnt = 2;
	attr.license = (unsigned long)"GPL";
	return bpf(BPF_PROG_LOAD, &attr);
}

int main(int argc, char **argv)
{
	int i, fd;

	if (argc < 3)
		return 1;
	for (i = atoi(argv[2]); i; i--) {
		if (argc == 4)
			fd = create_ringbuf(atoi(argv[3]));
		else if (!strcmp(argv[1], "prog"))
			fd = load_program();
		else
			fd = create_array();
		if (fd < 0) {
			perror("bpfmaps");
			return 1;
		}
		close(fd);
	}
	return 0;
}
