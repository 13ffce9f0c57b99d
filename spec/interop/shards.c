/* Where the core's ring keeps each key: the same arguments, file and output as Shards.java. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/ring.h"

static hf_shard shard_of(char *argument) {
    char *colon = strchr(argument, ':');
    if (!colon) exit(2);
    *colon = '\0';
    return (hf_shard){colon == argument ? NULL : argument, (unsigned)strtoul(colon + 1, NULL, 10)};
}

static size_t decode(char *key, const char *line) {
    size_t size = 0;
    unsigned byte;
    while (sscanf(line + 2 * size, "%2x", &byte) == 1) key[size++] = (char)byte;
    return size;
}

int main(int argc, char **argv) {
    hf_shard shards[HF_RING_MAX_SHARDS];
    size_t count = 0;
    static char line[4096], key[sizeof line / 2];
    FILE *file = argc > 2 ? fopen(argv[1], "r") : NULL;
    if (!file || argc - 2 > HF_RING_MAX_SHARDS) return 2;
    for (int i = 2; i < argc; i++) shards[count++] = shard_of(argv[i]);
    hf_ring ring;
    if (!hf_ring_init(&ring, shards, count)) return 1;
    while (fgets(line, sizeof line, file))
        printf("%zu\n", hf_ring_find(&ring, (hf_slice){key, decode(key, line)}));
    hf_ring_free(&ring);
    fclose(file);
    return 0;
}
