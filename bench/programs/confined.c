// SPDX-License-Identifier: GPL-2.0
/* Runs a command under a filter of the size that container engines install: confined COMMAND... */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { CALLS = 300 };

int main(int argc, char **argv)
{
	static struct sock_filter insns[CALLS + 2];
	struct sock_fprog prog = { .len = CALLS + 2, .filter = insns };
	int i;

	/* Each system call is compared with numbers that no call has, and allowed. */
	insns[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
	for (i = 1; i <= CALLS; i++)
		insns[i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1000 + i, 0, 0);
	insns[i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog)) {
		perror("confined");
		return 1;
	}
	execvp(argv[1], argv + 1);
	perror(argv[1]);
	return 1;
}
