#pragma once

// The fused ops behind a C interface, for the comparison program beside this: plain enough for ctypes. Every call
// returns null, or the text of an error that stays valid until the thread's next call.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct tandem_session tandem_session;

/// A matrix of bf16 on the GPU, strides in elements.
typedef struct {
  void* data;
  int64_t rows;
  int64_t columns;
  int64_t row_stride;
  int64_t column_stride;
} tandem_matrix;

/// Rank 0 calls it and hands `address` to the others, who call tandem_open() with it.
const char* tandem_serve(int world, char* address, int64_t capacity);
const char* tandem_open(int rank, int world, int gpu, const char* address, tandem_session** session);
void tandem_close(tandem_session* session);

/// algorithm: "serial", "pipelined" or "auto". stream: a cudaStream_t of the session's GPU.
/// a [m/W, k], b [k, n], out [m, n].
const char* tandem_all_gather_matmul(tandem_session* session, void* stream, tandem_matrix a, tandem_matrix b,
                                     tandem_matrix out, const char* algorithm);
/// a [m, k], b [k, n], out [m/W, n].
const char* tandem_matmul_reduce_scatter(tandem_session* session, void* stream, tandem_matrix a,
                                         tandem_matrix b, tandem_matrix out, const char* algorithm);
/// Blocks until the stream's work is done, and returns its fault.
const char* tandem_synchronize(tandem_session* session, void* stream);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
