// SPDX-License-Identifier: GPL-2.0
/* Reads the names and values of the statistics of a network device again and again: ethloop DEVICE TIMES */
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	static char strings[1 << 16], stats[1 << 16];
	struct ethtool_gstrings *s = (void *)strings;
	struct ethtool_stats *v = (void *)stats;
	struct ethtool_drvinfo info = { .cmd = ETHTOOL_GDRVINFO };
	struct ifreq req = {};
	int i, fd = socket(AF_INET, SOCK_DGRAM, 0);

	strncpy(req.ifr_name, argv[1], IFNAMSIZ - 1);
	req.ifr_data = (void *)&info;
	if (argc != 3 || ioctl(fd, SIOCETHTOOL, &req) || !info.n_stats)
		return perror("ethloop"), 1;
	for (i = atoi(argv[2]); i; i--) {
		*s = (struct ethtool_gstrings){ .cmd = ETHTOOL_GSTRINGS, .string_set = ETH_SS_STATS, .len = info.n_stats };
		req.ifr_data = strings;
		if (ioctl(fd, SIOCETHTOOL, &req))
			return perror("strings"), 1;
		*v = (struct ethtool_stats){ .cmd = ETHTOOL_GSTATS, .n_stats = info.n_stats };
		req.ifr_data = stats;
		if (ioctl(fd, SIOCETHTOOL, &req))
			return perror("stats"), 1;
	}
	return 0;
}
