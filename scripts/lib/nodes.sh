#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Guests with NUMA nodes. Sourced by qemu/run and scripts/kunit.

# node_arguments NODES CPUS MEM: prints the QEMU arguments that divide CPUS CPUs and MEM MiB of memory evenly between NODES NUMA nodes.
node_arguments() {
	local nodes=$1 cpus=$2 mem=$3 node
	for ((node = 0; node < nodes; node++)); do
		printf ' -object memory-backend-ram,id=node%s,size=%sM' "$node" "$((mem * (node + 1) / nodes - mem * node / nodes))"
		printf ' -numa node,memdev=node%s,cpus=%s-%s' "$node" "$((cpus * node / nodes))" "$((cpus * (node + 1) / nodes - 1))"
	done
}
