// SPDX-License-Identifier: GPL-2.0
/* Makes an io_uring and registers 16 buffers of 1 MiB with it, then closes it: buffers TIMES */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* As in linux/io_uring.h, which tcc cannot read. */
enum { SETUP = 425, REGISTER = 427, REGISTER_BUFFERS = 0, UNREGISTER_BUFFERS = 1 };
enum { PARAMS_BYTES = 120 };
enum { ENTRIES = 256, BUFFERS = 16, BYTES = 1 << 20 };

int main(int argc, char **argv)
{
	struct iovec vecs[BUFFERS];
	int i, fd;

	for (i = 0; i < BUFFERS; i++) {
		vecs[i].iov_base = malloc(BYTES);
		vecs[i].iov_len = BYTES;
		if (!vecs[i].iov_base)
			return 1;
		memset(vecs[i].iov_base, 1, BYTES);
	}
	for (i = argc == 2 ? atoi(argv[1]) : 0; i; i--) {
		char params[PARAMS_BYTES] = {};

		fd = syscall(SETUP, ENTRIES, params);
		if (fd < 0 || syscall(REGISTER, fd, REGISTER_BUFFERS, vecs, BUFFERS) ||
		    syscall(REGISTER, fd, UNREGISTER_BUFFERS, NULL, 0)) {
			perror("buffers");
			return 1;
		}
		close(fd);
	}
	return 0;
}
