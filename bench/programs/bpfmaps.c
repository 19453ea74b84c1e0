// SPDX-License-Identifier: GPL-2.0
/* Creates and closes BPF maps: bpfmaps array TIMES, an array that can be mapped, or bpfmaps ringbuf TIMES BYTES */
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	union bpf_attr attr;
	int i, fd;

	if (argc < 3)
		return 1;
	for (i = atoi(argv[2]); i; i--) {
		memset(&attr, 0, sizeof(attr));
		if (argc == 4) {
			attr.map_type = BPF_MAP_TYPE_RINGBUF;
			attr.max_entries = atoi(argv[3]);
		} else {
			attr.map_type = BPF_MAP_TYPE_ARRAY;
			attr.key_size = 4;
			attr.value_size = 8;
			attr.max_entries = 64;
			attr.map_flags = BPF_F_MMAPABLE;
		}
		fd = syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));
		if (fd < 0)
			return perror("bpfmaps"), 1;
		close(fd);
	}
	return 0;
}
