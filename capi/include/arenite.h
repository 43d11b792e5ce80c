/* Arenite's arenas and pools for C: memory spaces, bump arenas, pools whose blocks come and go in any order.
 *
 *   arenite_space *host = arenite_space_host();
 *   arenite_pool *pool = arenite_pool_new(host, "scratch", ARENITE_NO_LIMIT);
 *   arenite_block block;
 *   if (arenite_pool_alloc(pool, 1000, 64, &block) == ARENITE_OK) {
 *       ... block.address ...
 *       arenite_pool_free(pool, block.key);
 *   }
 *   arenite_pool_delete(pool);
 *   arenite_space_delete(host);
 *
 * A call that fails changes nothing; arenite_last_error() says why in one sentence. Spaces and pools may be used
 * from any thread, an arena from one at a time. Null handles give ARENITE_INVALID, and deleting them is allowed.
 */
#ifndef ARENITE_H
#define ARENITE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a call came to. */
typedef enum arenite_status {
    ARENITE_OK = 0,
    ARENITE_NEVER_FITS = 1, /* no state of the space could ever serve this */
    ARENITE_NOT_NOW = 2,    /* it would fit if other blocks were given back */
    ARENITE_OVER_LIMIT = 3, /* a limit that somebody set is in the way */
    ARENITE_REFUSED = 4,    /* the system or driver said no */
    ARENITE_STALE = 5,      /* the key stands for no live block of this pool */
    ARENITE_INVALID = 6     /* a null handle, or an alignment that is no power of two */
} arenite_status;

#define ARENITE_NO_LIMIT SIZE_MAX

typedef struct arenite_space arenite_space;
typedef struct arenite_arena arenite_arena;
typedef struct arenite_pool arenite_pool;

/* Stands for a block of a pool. Good once. */
typedef struct arenite_key {
    uint32_t parts[3];
} arenite_key;

/* A block. The key is zero where it is of an arena. */
typedef struct arenite_block {
    void *address; /* of device memory: a number, not to be read through */
    size_t size_bytes;
    arenite_key key;
} arenite_block;

/* A point in the life of an arena. */
typedef struct arenite_checkpoint {
    size_t parts[2];
} arenite_checkpoint;

/* What a space of your own does. Both are called from any thread. */
typedef struct arenite_space_calls {
    /* A block of at least size_bytes at align or better, of nobody else's memory; NULL where there is none. */
    void *(*allocate)(void *context, size_t size_bytes, size_t align);
    /* Takes back what allocate gave, once. */
    void (*deallocate)(void *context, void *address, size_t size_bytes, size_t align);
} arenite_space_calls;

/* What a pool holds and has given out, in bytes but for the counts. */
typedef struct arenite_pool_stats {
    size_t live_bytes;
    size_t peak_bytes;
    size_t capacity_bytes;
    size_t padding_bytes;
    size_t blocks;
    size_t extents;
} arenite_pool_stats;

/* Why the last failing call of this thread failed: at most len bytes with the zero at the end. Returns the length
 * of the whole sentence without the zero; 0 where nothing failed yet. */
size_t arenite_last_error(char *text, size_t len);

/* Ordinary host memory. */
arenite_space *arenite_space_host(void);
/* A space of your own. The name is 1 to 14 of a-z, 0-9, '_', '-'; NULL for others or a missing call. The context
 * stays valid until the last arena and pool over the space is deleted. host_accessible: whether the CPU reads and
 * writes its blocks. base_align: a power of two that every block is aligned to. */
arenite_space *arenite_space_new(const char *name, uint16_t index, arenite_space_calls calls, void *context,
                                 int host_accessible, size_t base_align);
/* At most limit_bytes of another space, which may be deleted afterwards. */
arenite_space *arenite_space_limited(const arenite_space *space, size_t limit_bytes);
/* Arenas and pools over it keep it alive. */
void arenite_space_delete(arenite_space *space);

/* An arena; the name may be NULL. */
arenite_arena *arenite_arena_new(const arenite_space *space, const char *name);
arenite_status arenite_arena_alloc(arenite_arena *arena, size_t size_bytes, size_t align, arenite_block *block);
arenite_checkpoint arenite_arena_checkpoint(const arenite_arena *arena);
/* Takes back what was allocated since; ARENITE_STALE where the arena never stood there. */
arenite_status arenite_arena_rewind(arenite_arena *arena, arenite_checkpoint checkpoint);
/* Takes everything back, keeps the memory. */
void arenite_arena_reset(arenite_arena *arena);
size_t arenite_arena_live_bytes(const arenite_arena *arena);
/* Gives all memory back to the space. */
void arenite_arena_delete(arenite_arena *arena);

/* A pool that holds at most limit_bytes; the name may be NULL. */
arenite_pool *arenite_pool_new(const arenite_space *space, const char *name, size_t limit_bytes);
arenite_status arenite_pool_alloc(arenite_pool *pool, size_t size_bytes, size_t align, arenite_block *block);
/* ARENITE_STALE for a key that was used before or is of another pool. */
arenite_status arenite_pool_free(arenite_pool *pool, arenite_key key);
/* Gives unused memory back to the space; says how many bytes. */
size_t arenite_pool_trim(arenite_pool *pool);
arenite_pool_stats arenite_pool_get_stats(const arenite_pool *pool);
/* Gives all memory back to the space, live blocks too. */
void arenite_pool_delete(arenite_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
