// SPDX-License-Identifier: GPL-2.0
/* Reads names and values of the statistics of a network device: ethloop DEVICE TIMES */
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static int fail(const char *what)
{
	perror(what);
	return 1;
}

int main(int argc, char **argv)
{
	static char strings[1 << 16], stats[1 << 16];
	struct ethtool_gstrings *s = (void *)strings;
	struct ethtool_stats *v = (void *)stats;
	struct ethtool_drvinfo info = { .cmd = ETHTOOL_GDRVINFO };
	struct ifreq req = {};
	int i, fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (argc != 3)
		return 1;
	snprintf(req.ifr_name, IFNAMSIZ, "%s", argv[1]);
	req.ifr_data = (void *)&info;
	if (ioctl(fd, SIOCETHTOOL, &req) || !info.n_stats)
		return fail("ethloop");
	for (i = atoi(argv[2]); i; i--) {
		s->cmd = ETHTOOL_GSTRINGS;
		s->string_set = ETH_SS_STATS;
		s->len = info.n_stats;
		req.ifr_data = strings;
		if (ioctl(fd, SIOCETHTOOL, &req))
			return fail("strings");
		v->cmd = ETHTOOL_GSTATS;
		v->n_stats = info.n_stats;
		req.ifr_data = stats;
		if (ioctl(fd, SIOCETHTOOL, &req))
			return fail("stats");
	}
	return 0;
}
