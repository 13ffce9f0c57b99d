#include "defects.h"

#ifdef HF_DEFECTS
hf_defect hf_defect_on;
#else
typedef bool hf_no_defects; /* a file must not be empty */
#endif
