/* Arenite for C: memory spaces, arenas, pools, and a memory planner.
 *
 *     space ── arena ── blocks           taken back together, in scopes
 *         └─── pool ─── blocks           taken back one by one
 *     buffers with lifespans ── plan ── offsets
 *
 * Bookkeeping is apart from the memory, so that the memory may be a device's.
 *
 * Every function that can fail gives a status, and fills `error` where it is not NULL: the numbers, and a sentence
 * that ends in NUL. A failed call changes nothing. Sizes and alignments are in bytes; alignments are powers of two.
 * Nothing here prints, aborts, or keeps a pointer that it does not say it keeps.
 *
 * Threads: a space and a pool may be used from any thread; an arena from one thread at a time.
 *
 * Link with libarenite_c (-larenite_c, and for the static library -lpthread -ldl -lm).
 */
#ifndef ARENITE_H
#define ARENITE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum arenite_status {
    ARENITE_OK = 0,
    ARENITE_NEVER_FITS = 1, /* no state of the space could serve this size and alignment */
    ARENITE_NOT_NOW = 2,    /* it would fit if other blocks were given back */
    ARENITE_OVER_LIMIT = 3, /* a limit is in the way */
    ARENITE_REFUSED = 4,    /* the system, the driver or the caller's function said no */
    ARENITE_INVALID = 5     /* an argument is wrong: a null pointer, an odd alignment, a point that is gone */
} arenite_status;

/* What failed, with every number that is known; 0 where a number is not. */
typedef struct arenite_error {
    int32_t status;
    uint32_t reserved;
    uint64_t asked_bytes;
    uint64_t align_bytes;
    uint64_t limit_bytes;
    uint64_t live_bytes;
    uint64_t largest_free_bytes;
    char message[272];
} arenite_error;

/* ---- Spaces: where blocks come from. Counted references: whoever makes or retains one releases it. ---- */

typedef struct arenite_space arenite_space;

/* Memory that the caller's functions hand out. */
typedef struct arenite_space_calls {
    void *context;       /* given to each function */
    int host_accessible; /* whether the CPU reads and writes the memory */
    /* `size` bytes at `align`, or NULL. Called from any thread. */
    void *(*allocate)(void *context, size_t size, size_t align);
    /* Takes back what `allocate` gave, with the same numbers. */
    void (*deallocate)(void *context, void *address, size_t size, size_t align);
    /* Called once, when nothing uses the space any more. May be NULL. */
    void (*release)(void *context);
} arenite_space_calls;

/* Ordinary memory of the host. Arenas over it grow in place. */
arenite_space *arenite_space_host(void);
/* Memory of a CUDA device, or page-locked host memory. Needs a driver, at run time only. */
arenite_status arenite_space_cuda(uint16_t device, arenite_space **space, arenite_error *error);
arenite_status arenite_space_pinned(arenite_space **space, arenite_error *error);
/* Memory of the caller's own, under a name like "shm" or "npu". The struct is copied. */
arenite_status arenite_space_own(const char *name, uint16_t index, const arenite_space_calls *calls,
                                 arenite_space **space, arenite_error *error);
/* The same memory with a limit; keeps a reference to `inner`. */
arenite_status arenite_space_limited(const arenite_space *inner, size_t limit_bytes, arenite_space **space,
                                     arenite_error *error);
arenite_space *arenite_space_retain(const arenite_space *space);
void arenite_space_release(arenite_space *space); /* NULL is allowed */
int arenite_space_host_accessible(const arenite_space *space);

/* ---- Arenas: blocks given out in order and taken back together. ---- */

typedef struct arenite_arena arenite_arena;

typedef struct arenite_block {
    void *address; /* to be read and written by the CPU only where the space is host-accessible */
    size_t size_bytes;
} arenite_block;

/* A point in the life of an arena to go back to. */
typedef struct arenite_checkpoint {
    uintptr_t parts[2];
} arenite_checkpoint;

typedef struct arenite_arena_stats {
    uint64_t live_bytes;     /* given out, padding included */
    uint64_t peak_bytes;     /* the most ever given out */
    uint64_t capacity_bytes; /* held */
} arenite_arena_stats;

/* An empty arena; keeps a reference to the space. */
arenite_status arenite_arena_new(const arenite_space *space, arenite_arena **arena, arenite_error *error);
/* Gives all memory back. NULL is allowed. */
void arenite_arena_free(arenite_arena *arena);
/* A block that stays valid and unmoved until the arena is taken back past it. Size 0 is allowed. */
arenite_status arenite_arena_allocate(arenite_arena *arena, size_t size, size_t align, arenite_block *block,
                                      arenite_error *error);
/* The same, reading as zero; host-accessible spaces only. */
arenite_status arenite_arena_allocate_zeroed(arenite_arena *arena, size_t size, size_t align, arenite_block *block,
                                             arenite_error *error);
arenite_checkpoint arenite_arena_checkpoint(const arenite_arena *arena);
/* Takes back what was given out since; ARENITE_INVALID, changing nothing, where that point is gone. */
arenite_status arenite_arena_rewind(arenite_arena *arena, arenite_checkpoint checkpoint, arenite_error *error);
/* Takes everything back and keeps the memory. */
void arenite_arena_reset(arenite_arena *arena);
/* Gives memory beyond `keep_bytes` back to the space, as far as nothing given out lies there. */
void arenite_arena_trim(arenite_arena *arena, size_t keep_bytes);
arenite_arena_stats arenite_arena_stats_of(const arenite_arena *arena);

/* ---- Pools: blocks that come and go in any order, from any thread. ---- */

typedef struct arenite_pool arenite_pool;

/* Stands for a block; good once. */
typedef struct arenite_key {
    uint32_t parts[3];
} arenite_key;

typedef struct arenite_pool_stats {
    uint64_t live_bytes;     /* given out */
    uint64_t peak_bytes;     /* the most ever given out */
    uint64_t capacity_bytes; /* held */
    uint64_t blocks;         /* how many are out */
} arenite_pool_stats;

/* An empty pool; keeps a reference to the space. A limit of 0 is none. */
arenite_status arenite_pool_new(const arenite_space *space, size_t limit_bytes, arenite_pool **pool,
                                arenite_error *error);
/* Gives all memory back, live blocks too. NULL is allowed. */
void arenite_pool_free(arenite_pool *pool);
/* A block that stays valid and unmoved until its key gives it back. */
arenite_status arenite_pool_take(const arenite_pool *pool, size_t size, size_t align, arenite_block *block,
                                 arenite_key *key, arenite_error *error);
/* ARENITE_INVALID, changing nothing, for a key that was used before or is of another pool. */
arenite_status arenite_pool_give_back(const arenite_pool *pool, arenite_key key, arenite_error *error);
/* Gives unused memory back to the space; says how many bytes. */
size_t arenite_pool_trim(const arenite_pool *pool);
arenite_pool_stats arenite_pool_stats_of(const arenite_pool *pool);

/* ---- Planning: offsets for buffers with lifespans. ---- */

typedef struct arenite_buffer {
    uint64_t size_bytes;
    uint64_t align_bytes; /* a power of two */
    uint64_t first;       /* the first step at which it is alive */
    uint64_t last;        /* one past the last */
} arenite_buffer;

typedef enum arenite_strategy {
    ARENITE_PLAN_NAIVE = 0,     /* shares nothing */
    ARENITE_PLAN_FIRST_FIT = 1, /* in order of start */
    ARENITE_PLAN_GREEDY = 2,    /* the largest first */
    ARENITE_PLAN_BEST = 3       /* searches for `budget_ms` at most, and proves what it can */
} arenite_strategy;

typedef struct arenite_plan {
    uint64_t peak_bytes;  /* the size of the memory that holds all buffers */
    uint64_t bound_bytes; /* no plan needs less */
    int32_t is_optimal;   /* whether none is better, proven */
    uint32_t reserved;
} arenite_plan;

/* Writes one offset per buffer; every plan is verified before it is given. `strategy` is an arenite_strategy. */
arenite_status arenite_plan_buffers(const arenite_buffer *buffers, size_t count, int strategy, uint64_t budget_ms,
                                    uint64_t *offsets, arenite_plan *plan, arenite_error *error);

#ifdef __cplusplus
}
#endif

#endif
