// SPDX-License-Identifier: GPL-2.0
/*
 * Areas in each state, for test_vmap.py: of the allocator in Rust, or of the
 * rb-trees, as bench/native builds both. Prints the addresses, and waits.
 */
#include <stdio.h>
#include <unistd.h>

extern struct side SIDE;

/* For the cases of bench/native, which do not run here. */
void mark_area(struct vm_struct *vm, unsigned long pages, struct vm_struct *(*find)(unsigned long)) { }
void unmark_area(struct vm_struct *vm) { }

static void show(const char *name, unsigned long start)
{
	printf("%s %lu\n", name, start);
}

static struct vm_struct *get(const char *name, unsigned long bytes)
{
	struct vm_struct *vm = SIDE.get(bytes);

	if (!vm)
		broken("no area");
	show(name, (unsigned long)vm->addr);
	return vm;
}

#ifdef IS_rust
/* What a kernel has besides. */
#undef PAGE_SHIFT
enum constants { PAGE_SHIFT = 12 } constants;
struct static_key { struct { int counter; } enabled; };
struct static_key_false { struct static_key key; } vmap_rust_key;

unsigned long *rust_alloc(unsigned long size, unsigned long align, unsigned long vstart, unsigned long vend,
			  unsigned long va_flags, struct vm_struct *vm, unsigned int gfp, int node);
void *rust_unlink(unsigned long addr);

static void fill(void)
{
	enum { VMAP_RAM = 1 };

	vmap_rust_key.key.enabled.counter = 1;
	get("stack", PAGE_SIZE);
	SIDE.put(get("lazy", PAGE_SIZE));
	/* The address is the first field. */
	show("ram", *rust_alloc(2 * PAGE_SIZE, 1, VMALLOC_START, VMALLOC_END, VMAP_RAM, NULL, 0xcc0, -1));
	rust_unlink((unsigned long)get("unlinked", PAGE_SIZE)->addr);
	get("tree", 100 << 20);
	SIDE.put(get("tree_lazy", 90 << 20));
	/* The block fills a part of the directory. */
	cpu_number = 1;
	get("whole", 70 << 20);
	/* It is in the bitmap at once; the lazy one above waits in a batch. */
	SIDE.put(get("whole_lazy", 70 << 20));
}
#else
static void fill(void)
{
	get("first", PAGE_SIZE);
	SIDE.put(get("lazy", PAGE_SIZE));
	get("second", 5 * PAGE_SIZE);
}
#endif

int main(void)
{
	nr_cpu_ids = 2;
	SIDE.init();
	fill();
	fclose(stdout);
	pause();
}
