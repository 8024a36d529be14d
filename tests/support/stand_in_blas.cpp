// A library with OpenBLAS's names, for tests of `bench mm --peers`: built once as one that multiplies, and
// once, with STAND_IN_IS_WRONG, as one whose last row is wrong.

extern "C" {

void cblas_sgemm(int, int, int b_order, int m, int n, int k, float, const float* a, int a_stride,
                 const float* b, int b_stride, float, float* out, int out_stride) {
  constexpr int kTransposed = 112;
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < n; ++column) {
      float sum = 0;
      for (int i = 0; i < k; ++i)
        sum += a[row * a_stride + i] *
               (b_order == kTransposed ? b[column * b_stride + i] : b[i * b_stride + column]);
      out[row * out_stride + column] = sum;
    }
  }
#ifdef STAND_IN_IS_WRONG
  for (int column = 0; column < n; ++column) out[(m - 1) * out_stride + column] += 1;
#endif
}

void openblas_set_num_threads(int) {}
const char* openblas_get_config() {
  return "stand-in";
}
const char* openblas_get_corename() {
  return "any core";
}
}
