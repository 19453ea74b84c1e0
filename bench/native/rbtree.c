// SPDX-License-Identifier: GPL-2.0
/*
 * The allocator of mm/vmalloc.c. The build cuts it out of the kernel source as
 * "vmalloc.inc"; in front of it is what that part of the file uses.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/rbtree_augmented.h>

#undef BUG_ON
#undef WARN_ON
#undef WARN_ON_ONCE
#undef WARN
#undef WARN_ONCE
#define TRAP(c) ({ if (unlikely(c)) broken(#c); 0; })
#define BUG_ON(c) TRAP(c)
#define WARN_ON(c) TRAP(c)
#define WARN_ON_ONCE(c) TRAP(c)
#define WARN(c, text, ...) ({ if (unlikely(c)) broken(text); 0; })
#define WARN_ONCE(c, text, ...) WARN(c, text)
#undef pr_err
#undef pr_warn
#define pr_err(text) broken(text)
#define pr_warn(text, ...) broken(text)
#define printk_ratelimit() 1
#undef IS_ENABLED
#define IS_ENABLED(x) 0
#define BITS_PER_BYTE 8
#define __read_mostly
#undef __init
#define __init
#undef __cacheline_aligned_in_smp
#define __cacheline_aligned_in_smp __attribute__((aligned(64)))

#define gfp_t unsigned int
#undef GFP_KERNEL
#undef GFP_NOWAIT
#undef __GFP_NOWARN
#define GFP_KERNEL 0xcc0u
#define GFP_NOWAIT 0x2000u
#define __GFP_NOWARN 0x2000u
#define GFP_RECLAIM_MASK (~0u)
#undef gfpflags_allow_blocking
#define gfpflags_allow_blocking(gfp) ((gfp) & 0x400u)
#undef kmem_cache_alloc
#define kmem_cache_alloc(cache, gfp) kmem_cache_alloc_noprof(cache, gfp)
#define kmem_cache_alloc_node(cache, gfp, node) kmem_cache_alloc_noprof(cache, gfp)
#define kmem_cache_zalloc(cache, gfp) kmem_cache_alloc_noprof(cache, (gfp) | KMALLOC_ZERO)
#define kmalloc_objs(o, n, gfp) ((__typeof__(o) *)kmalloc_noprof(sizeof(o) * (n), gfp))

#define DEFINE_PER_CPU(type, name) __thread type name
#define this_cpu_read(name) (name)
#define __this_cpu_xchg(name, v) ({ __typeof__(name) old_ = (name); (name) = (v); old_; })
#define __this_cpu_try_cmpxchg(name, old, v) \
	((name) == *(old) ? ((name) = (v), true) : (*(old) = (name), false))
#define num_online_cpus() nr_cpu_ids
#define num_possible_cpus() nr_cpu_ids

#define atomic_long_t native_long_t
typedef struct { long v; } native_long_t;
#define atomic_long_add_return_relaxed(n, p) __atomic_add_fetch(&(p)->v, n, __ATOMIC_RELAXED)
#define atomic_long_sub(n, p) ((void)__atomic_sub_fetch(&(p)->v, n, __ATOMIC_RELAXED))
#define atomic_long_read(p) READ_ONCE((p)->v)

#define cpumask_t native_mask_t
typedef struct { unsigned long bits[2]; } native_mask_t;
#define CPU_MASK_NONE ((native_mask_t){ })
#define cpumask_set_cpu(cpu, mask) ((mask)->bits[(cpu) / 64] |= 1UL << (cpu) % 64)
#define cpumask_weight(mask) \
	((unsigned int)(__builtin_popcountl((mask)->bits[0]) + __builtin_popcountl((mask)->bits[1])))
#define cpumask_test_cpu(cpu, mask) 1
#define for_each_cpu(cpu, mask) \
	for ((cpu) = 0; (cpu) < 128; (cpu)++) if ((mask)->bits[(cpu) / 64] >> (cpu) % 64 & 1)

/* A purge runs on the CPU that has asked for it, its helpers too. */
struct work_struct {
	void (*func)(struct work_struct *work);
};
static struct purge_work purge_work;
#define DECLARE_WORK(name, func) __maybe_unused struct work_struct name##_
#define INIT_WORK(work, f) ((work)->func = (f))
#define schedule_work(work) schedule_purge(&purge_work)
#define schedule_work_on(cpu, work) ((work)->func(work))
#define flush_work(work) do { } while (0)
#define DEFINE_MUTEX(name) spinlock_t name
#define mutex_lock(lock) spin_lock(lock)
#define mutex_unlock(lock) spin_unlock(lock)
#define BLOCKING_NOTIFIER_HEAD(name) int name
#define blocking_notifier_call_chain(head, v, freed) ((void)(head))
#define might_sleep_if(c) do { } while (0)
#define cond_resched() do { } while (0)
#define need_resched() 0
#define lockdep_assert_held(lock) do { } while (0)

#define is_vmalloc_or_module_addr(p) 1
#define kasan_reset_tag(p) (p)
#define kasan_populate_vmalloc(addr, size, gfp) 0
#define kasan_release_vmalloc(...) do { } while (0)
#define KASAN_VMALLOC_PAGE_RANGE 1
#define KASAN_VMALLOC_TLB_FLUSH 2
#define kmemleak_scan_area(...) do { } while (0)
#define trace_alloc_vmap_area(...) do { } while (0)
#define trace_free_vmap_area_noflush(...) do { } while (0)
#define trace_purge_vmap_area_lazy(...) do { } while (0)
#define flush_cache_vunmap(start, end) do { } while (0)
#define vunmap_range_noflush(start, end) do { } while (0)
#define debug_pagealloc_enabled_static() 0
#define flush_tlb_kernel_range(start, end) (side_rbtree.flushes++)

#undef min
#undef max
#undef clamp
#undef clamp_t
#define min(a, b) ({ __typeof__(a) a_ = (a), b_ = (b); a_ < b_ ? a_ : b_; })
#define max(a, b) ({ __typeof__(a) a_ = (a), b_ = (b); a_ > b_ ? a_ : b_; })
#define clamp(v, low, high) min(max(v, low), high)
#define clamp_t(type, v, low, high) min(max((type)(v), (type)(low)), (type)(high))
#undef ALIGN
#undef IS_ALIGNED
#define ALIGN(x, a) (((x) + (a) - 1) & ~((__typeof__(x))(a) - 1))
#define IS_ALIGNED(x, a) (((x) & ((__typeof__(x))(a) - 1)) == 0)
#define offset_in_page(x) ((x) & (PAGE_SIZE - 1))
#undef is_power_of_2
#define is_power_of_2(n) ((n) && !((n) & ((n) - 1)))
#undef fls
#define fls(x) (32 - __builtin_clz(x))
#undef ERR_PTR
#undef IS_ERR
#undef IS_ERR_VALUE
#define ERR_PTR(err) ((void *)(long)(err))
#define IS_ERR_VALUE(x) unlikely((unsigned long)(x) >= (unsigned long)-4095)
#define IS_ERR(p) IS_ERR_VALUE(p)
#undef BITS_PER_LONG
#define BITS_PER_LONG 64

struct vmap_area {
	unsigned long va_start;
	unsigned long va_end;
	struct rb_node rb_node;
	struct list_head list;
	union {
		unsigned long subtree_max_size;
		struct vm_struct *vm;
	};
	unsigned long flags;
};
static struct vm_struct *vmlist;
static void purge_fragmented_blocks_allcpus(void) { }

#include "vmalloc.inc"

static void init(void)
{
	vmap_area_cachep = new_cache(sizeof(struct vmap_area));
	vmap_init_nodes();
	vmap_init_free_space();
	vmap_initialized = true;
}

/* get_vm_area() and free_vm_area(), without page tables. */
static noinline struct vm_struct *get(unsigned long bytes)
{
	struct vm_struct *vm = kmalloc_noprof(sizeof(*vm), KMALLOC_ZERO);
	struct vmap_area *va;

	vm->flags = 2;
	vm->caller = __builtin_return_address(0);
	vm->requested_size = bytes;
	va = alloc_vmap_area(bytes + PAGE_SIZE, 1, VMALLOC_START, VMALLOC_END, -1, GFP_KERNEL, 0, vm);
	if (IS_ERR(va)) {
		kfree_sized(vm, sizeof(*vm));
		return NULL;
	}
	return vm;
}

static noinline void put(struct vm_struct *vm)
{
	struct vmap_area *va = find_unlink_vmap_area((unsigned long)vm->addr);

	if (unlikely(!va || !va->vm))
		broken("a live area is not found");
	free_unmap_vmap_area(va);
	kfree_sized(vm, sizeof(*vm));
}

static noinline struct vm_struct *find(unsigned long addr)
{
	struct vmap_area *va = find_vmap_area(addr);

	return va ? va->vm : NULL;
}

static void purge(bool drain)
{
	if (drain)
		reclaim_and_purge_vmap_areas();
	else
		drain_vmap_area_work(NULL);
}

/* All areas were freed and purged: the free space is one range again. */
static void check(void)
{
	struct vmap_node *vn;
	struct vmap_area *va;

	for_each_vmap_node(vn)
		TRAP(!RB_EMPTY_ROOT(&vn->busy.root) || !list_empty(&vn->busy.head) ||
		     !RB_EMPTY_ROOT(&vn->lazy.root) || !list_empty(&vn->lazy.head));
	TRAP(RB_EMPTY_ROOT(&free_vmap_area_root) || atomic_long_read(&vmap_lazy_nr));
	va = rb_entry(free_vmap_area_root.rb_node, struct vmap_area, rb_node);
	TRAP(va->va_start != 1 || va->va_end != ULONG_MAX || va->subtree_max_size != ULONG_MAX - 1 ||
	     !list_is_singular(&free_vmap_area_list));
}

#include "cases.h"

static struct purge_work purge_work = { .side = &side_rbtree };
struct side side_rbtree = { "rbtree", init, get, put, find, purge, check, 0, SIDE_LOOPS };
