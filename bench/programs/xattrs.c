// SPDX-License-Identifier: GPL-2.0
/* Makes files, sets, reads and removes an attribute of 60 KiB of each: xattrs FOLDER FILES */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { BYTES = 60 << 10 };

int main(int argc, char **argv)
{
	static char value[BYTES], back[BYTES];
	char path[200];
	int i, fd;

	if (argc != 3)
		return 1;
	memset(value, 'x', BYTES);
	for (i = atoi(argv[2]); i; i--) {
		snprintf(path, sizeof(path), "%s/%d", argv[1], i);
		fd = open(path, O_CREAT | O_RDWR, 0600);
		if (fd < 0 || fsetxattr(fd, "user.large", value, BYTES, 0) ||
		    fgetxattr(fd, "user.large", back, BYTES) != BYTES ||
		    memcmp(value, back, BYTES) ||
		    fremovexattr(fd, "user.large") || unlink(path)) {
			perror(path);
			return 1;
		}
		close(fd);
	}
	return 0;
}
