// SPDX-License-Identifier: GPL-2.0
/*
 * bpf-load SECONDS: loads and frees BPF programs of many sizes for that time, and
 * prints how many, and how long the slowest took.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAX_INSNS 4000
#define KEPT 16

static struct bpf_insn insns[MAX_INSNS];

/* fill: writes a program of @count instructions that returns 0 to insns. */
static void fill(unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count - 1; i++)
		insns[i] = (struct bpf_insn){ .code = BPF_ALU64 | BPF_MOV | BPF_K };
	insns[i] = (struct bpf_insn){ .code = BPF_JMP | BPF_EXIT };
}

/* load: loads a socket filter of @count instructions; returns its file descriptor, or -1. */
static int load(unsigned int count)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
	attr.insns = (unsigned long)insns;
	attr.insn_cnt = count;
	attr.license = (unsigned long)"GPL";
	fill(count);
	return syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
}

/* now_us: returns a time in microseconds. */
static unsigned long now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000UL + ts.tv_nsec / 1000;
}

int main(int argc, char **argv)
{
	int fds[KEPT], fd, slot;
	unsigned long loaded = 0, slowest = 0, start;
	time_t end;

	if (argc != 2) {
		fprintf(stderr, "usage: bpf-load SECONDS\n");
		return 1;
	}
	memset(fds, -1, sizeof(fds));
	end = time(NULL) + atoi(argv[1]);
	while (time(NULL) < end) {
		/* Some programs stay loaded, so that the ranges beside a freed one are in use. */
		slot = rand() % KEPT;
		start = now_us();
		if (fds[slot] >= 0)
			close(fds[slot]);
		fd = load(2 + rand() % (MAX_INSNS - 2));
		if (fd < 0) {
			printf("bpf-load: %s after %lu programs\n", strerror(errno), loaded);
			return 1;
		}
		fds[slot] = fd;
		loaded++;
		start = now_us() - start;
		if (start > slowest)
			slowest = start;
	}
	printf("%lu programs, the slowest took %lu us\n", loaded, slowest);
	return 0;
}
