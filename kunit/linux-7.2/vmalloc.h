/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the suites use of mm/vmalloc.h, for Linux 7.2, which has it in
 * mm/internal.h.
 */
#ifndef _VMAP_KUNIT_VMALLOC_H
#define _VMAP_KUNIT_VMALLOC_H

#include <linux/gfp.h>
#include "internal.h"

/*
 * pcpu_get_vm_areas() as in Linux 7.3; that of 7.2 takes the memory with
 * GFP_KERNEL. If @gfp does not allow to sleep, no task may reclaim memory
 * meanwhile, since gfp_allowed_mask is global: fault injection fails only
 * allocations that may not, see should_failslab() in mm/failslab.c. May sleep
 * all the same.
 */
static inline struct vm_struct **vmap_pcpu_get(const unsigned long *offsets, const size_t *sizes,
					       int nr_vms, size_t align, gfp_t gfp)
{
	gfp_t allowed = READ_ONCE(gfp_allowed_mask);
	struct vm_struct **vms;

	if (!gfpflags_allow_blocking(gfp))
		WRITE_ONCE(gfp_allowed_mask, allowed & ~__GFP_DIRECT_RECLAIM);
	vms = pcpu_get_vm_areas(offsets, sizes, nr_vms, align);
	WRITE_ONCE(gfp_allowed_mask, allowed);
	return vms;
}

#define pcpu_get_vm_areas vmap_pcpu_get

#endif /* _VMAP_KUNIT_VMALLOC_H */
