/* Sentinels: who knows where the master is.
 *
 * The client's first node is the master, the others are Sentinels, of which only the calls link is used. No link to the
 * master is opened but after the Sentinels' word: all are asked at once, and where they differ the vote of most of them
 * counts. While the master serves us over another link only the word of a majority of all Sentinels moves us away from
 * it, and none is needed to stay; while it does not, the most votes that there are count. */
#ifndef HF_SENTINEL_H
#define HF_SENTINEL_H

#include "client.h"

/* Makes the first node of a client in this mode a master that may move. Once, before anything else. False: out of
 * memory. */
bool hf_sentinels_begin(hf_client *client);
void hf_sentinels_end(hf_client *client);

/* When hf_sentinels_tick has something to do; HF_NEVER for a client in another mode. */
hf_time hf_sentinels_deadline(const hf_client *client);
void hf_sentinels_tick(hf_client *client, hf_time now);

#endif
