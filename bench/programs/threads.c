// SPDX-License-Identifier: GPL-2.0
/* Keeps a number of threads until it is killed: threads N */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *wait_for_ever(void *arg)
{
	pause();
	return arg;
}

int main(int argc, char **argv)
{
	pthread_attr_t attr;
	pthread_t thread;
	int i;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 1 << 17);
	for (i = argc == 2 ? atoi(argv[1]) : 0; i; i--) {
		if (pthread_create(&thread, &attr, wait_for_ever, NULL)) {
			perror("threads");
			return 1;
		}
	}
	pause();
	return 0;
}
