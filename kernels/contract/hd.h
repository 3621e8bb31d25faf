// Marks functions that both the host and the GPU compile.
#pragma once

#if defined(__CUDACC__)
#define ATTNBENCH_HD __host__ __device__
#else
#define ATTNBENCH_HD
#endif
