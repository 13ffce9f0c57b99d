/* Sentinels, which know the address of the master.
 *
 * The client's first node is the master. The others are the Sentinels, of which only the calls link
 * is used. A link to the master is opened only after the Sentinels have answered. The client asks
 * all of them at once; if they disagree, the address with the most votes counts. While the master
 * serves the client over another link, the client moves away only for a majority of all Sentinels,
 * and needs none to stay. */
#ifndef HF_SENTINEL_H
#define HF_SENTINEL_H

#include "classes.h"

extern const hf_topology hf_sentinel_topology;

#endif
