/* A small runtime in C: it plans its tensors, carves them from one arena, and runs in memory of its own.
 *
 *     cargo build --release -p arenite-capi
 *     cc -std=c11 -Icapi/include capi/examples/runtime.c target/release/libarenite_c.a -lpthread -ldl -lm -o runtime
 *     ./runtime
 */
#include "arenite.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory of this program's own: a fixed pool, handed out from the front. */
static struct {
    _Alignas(4096) unsigned char bytes[1 << 18];
    size_t used;
    int live;
} pool;

static void *pool_allocate(void *context, size_t size, size_t align) {
    size_t start = (pool.used + align - 1) & ~(align - 1);
    (void)context;
    if (start + size > sizeof pool.bytes) {
        return NULL;
    }
    pool.used = start + size;
    pool.live++;
    return pool.bytes + start;
}

static void pool_deallocate(void *context, void *address, size_t size, size_t align) {
    (void)context, (void)address, (void)size, (void)align;
    pool.live--;
}

static void check(arenite_status status, const arenite_error *error) {
    if (status != ARENITE_OK) {
        fprintf(stderr, "%s\n", error->message);
        exit(1);
    }
}

int main(void) {
    arenite_error error;

    /* Three tensors; the first is dead when the third is made. */
    const arenite_buffer tensors[] = {{4096, 64, 0, 2}, {2048, 64, 1, 3}, {4096, 64, 2, 4}};
    uint64_t offsets[3];
    arenite_plan plan;
    check(arenite_plan_buffers(tensors, 3, ARENITE_PLAN_BEST, 100, offsets, &plan, &error), &error);
    printf("planned: %" PRIu64 " bytes, bound %" PRIu64 ", %s\n", plan.peak_bytes, plan.bound_bytes,
           plan.is_optimal ? "optimal" : "not proven");

    /* An arena over the pool above, at most 16 KiB of it. */
    const arenite_space_calls calls = {NULL, 1, pool_allocate, pool_deallocate, NULL};
    arenite_space *own, *limited;
    arenite_arena *arena;
    check(arenite_space_own("pool", 0, &calls, &own, &error), &error);
    check(arenite_space_limited(own, 16 << 10, &limited, &error), &error);
    check(arenite_arena_new(limited, &arena, &error), &error);

    arenite_block memory;
    check(arenite_arena_allocate_zeroed(arena, plan.peak_bytes, 64, &memory, &error), &error);
    unsigned char *third = (unsigned char *)memory.address + offsets[2];
    memset(third, 7, tensors[2].size_bytes);
    printf("third tensor at offset %" PRIu64 ": %d\n", offsets[2], third[100]);

    /* Scratch comes and goes. */
    arenite_checkpoint before = arenite_arena_checkpoint(arena);
    arenite_block scratch;
    check(arenite_arena_allocate(arena, 1000, 256, &scratch, &error), &error);
    check(arenite_arena_rewind(arena, before, &error), &error);
    printf("live after scratch: %" PRIu64 "\n", arenite_arena_stats_of(arena).live_bytes);

    /* What cannot be given is an answer with numbers. */
    arenite_status status = arenite_arena_allocate(arena, 64 << 10, 64, &scratch, &error);
    printf("%d: %s\n", (int)status, error.message);

    /* Blocks that come and go one by one, from the same memory. */
    arenite_pool *blocks;
    arenite_key key;
    check(arenite_pool_new(own, 0, &blocks, &error), &error);
    check(arenite_pool_take(blocks, 500, 64, &scratch, &key, &error), &error);
    check(arenite_pool_give_back(blocks, key, &error), &error);
    status = arenite_pool_give_back(blocks, key, &error);
    printf("given back twice: %d\n", (int)status);
    arenite_pool_free(blocks);

    arenite_arena_free(arena);
    arenite_space_release(limited);
    arenite_space_release(own);
    printf("blocks of the pool left: %d\n", pool.live);
    return pool.live;
}
