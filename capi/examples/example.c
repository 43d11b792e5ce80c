/* Arenas and pools from C, and a space of one's own. Prints its findings and ends with 0 if all are right. */
#include "arenite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t calls;

static void *own_allocate(void *context, size_t size_bytes, size_t align) {
    (void)context;
    calls += 1;
    return aligned_alloc(align, (size_bytes + align - 1) / align * align);
}

static void own_deallocate(void *context, void *address, size_t size_bytes, size_t align) {
    (void)context, (void)size_bytes, (void)align;
    calls -= 1;
    free(address);
}

#define CHECK(what)                                                                                                    \
    if (!(what)) {                                                                                                     \
        char text[400];                                                                                                \
        arenite_last_error(text, sizeof text);                                                                         \
        printf("line %d: %s is not so; last error: %s\n", __LINE__, #what, text);                                      \
        return 1;                                                                                                      \
    }

int main(void) {
    arenite_block first, second;
    char text[400];

    /* An arena over host memory: in order, taken back together. */
    arenite_space *host = arenite_space_host();
    arenite_arena *arena = arenite_arena_new(host, "scratch");
    CHECK(arenite_arena_alloc(arena, 100, 64, &first) == ARENITE_OK);
    memset(first.address, 7, first.size_bytes);
    arenite_checkpoint point = arenite_arena_checkpoint(arena);
    CHECK(arenite_arena_alloc(arena, 5000, 4096, &second) == ARENITE_OK);
    CHECK((uintptr_t)second.address % 4096 == 0);
    CHECK(arenite_arena_rewind(arena, point) == ARENITE_OK);
    CHECK(arenite_arena_live_bytes(arena) == 100);
    CHECK(arenite_arena_alloc(arena, 1, 3, &second) == ARENITE_INVALID);

    /* A pool over a space of one's own, with a limit: in any order. */
    arenite_space_calls own = {own_allocate, own_deallocate};
    arenite_space *space = arenite_space_new("c-heap", 0, own, NULL, 1, 64);
    CHECK(space != NULL);
    arenite_pool *pool = arenite_pool_new(space, "kv", 1 << 20);
    CHECK(arenite_pool_alloc(pool, 1000, 64, &first) == ARENITE_OK);
    CHECK(arenite_pool_alloc(pool, 300, 256, &second) == ARENITE_OK);
    memset(second.address, 7, second.size_bytes);
    CHECK(arenite_pool_free(pool, first.key) == ARENITE_OK);
    CHECK(arenite_pool_free(pool, first.key) == ARENITE_STALE);
    CHECK(arenite_pool_get_stats(pool).blocks == 1);
    CHECK(arenite_pool_alloc(pool, 2 << 20, 64, &first) == ARENITE_OVER_LIMIT);
    arenite_last_error(text, sizeof text);
    printf("%s\n", text);
    CHECK(strstr(text, "over the limit of 1048576 bytes set by the pool") != NULL);
    CHECK(arenite_pool_free(pool, second.key) == ARENITE_OK);
    CHECK(arenite_pool_trim(pool) > 0 && calls == 0);

    arenite_pool_delete(pool);
    arenite_space_delete(space);
    arenite_arena_delete(arena);
    arenite_space_delete(host);
    arenite_space_delete(NULL);
    puts("all is as it should be");
    return 0;
}
