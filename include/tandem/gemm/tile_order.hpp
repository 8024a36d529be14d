#pragma once

#include <cstdint>
#include <tandem/gemm/chunk_order.hpp>

namespace tandem::gemm {

/// How a kernel cuts its output, in rows and columns of the output, in tiles, and in clusters.
struct Tiling {
  int tile_rows = 128;
  int tile_columns = 256;
  int cluster_rows = 1;     ///< tiles of a cluster, one below the other
  int cluster_columns = 1;  ///< and beside each other
  int group = 8;            ///< most cluster rows that are swept along all columns together
};

/// Where the order begins in a single chunk.
struct TileStart {
  int row = 0;      ///< of tiles; those before it come last
  int section = 0;  ///< rows of tiles that arrive together, from `row` on; 0: all of them do
};

/// A tile of the output. Its rows lie in one chunk.
struct Tile {
  int chunk = 0;
  int row = 0;  ///< in tiles, from the chunk's first row
  int column = 0;
  friend constexpr bool operator==(const Tile&, const Tile&) = default;
};

/// Where a tile lies in tensors of [rows, columns, batches], in tiles.
struct TilePlace {
  int row = 0;
  int column = 0;
  int batch = 0;
};

/// Where chunks have whole tiles (`tiles_per_chunk` > 0) rows count through all of them and there is one
/// batch; else a chunk is a batch of its own; or batches of `tiles_per_batch` > 0 rows of tiles each are
/// taken as one chunk.
[[nodiscard]] constexpr TilePlace place_of(const Tile& tile, int tiles_per_chunk, int tiles_per_batch) {
  if (tiles_per_batch > 0) return {tile.row % tiles_per_batch, tile.column, tile.row / tiles_per_batch};
  if (tiles_per_chunk > 0) return {tile.chunk * tiles_per_chunk + tile.row, tile.column, 0};
  return {tile.row, tile.column, tile.chunk};
}

/// The order in which the clusters of a persistent kernel take the tiles of a product whose left operand
/// arrives in chunks. Cluster number i of the order goes to cluster i % resident of the grid.
///
///   - Every tile once, and no other: there is no padding, so no index out of range for any count of tiles.
///
///   - Chunks in the order of ChunkOrder, strictly: all tiles of one before the first of the next. A tile
///     lies in one chunk, so it needs one signal; the last tile row of a chunk may be short.
///
///   - A single chunk may be taken from a row of tiles in its middle on; the tiles of a cluster then lie in
///     rows one behind the other, the first behind the last. It may have sections, which are taken strictly
///     one after the other; a cluster that lies in two of them is of the later one.
///
///   - Inside a chunk, or a section, groups of at most `group` cluster rows sweep the columns, so that what
///     runs at one time reads few rows of a and few columns of b. Groups of a chunk are equal but for one
///     row. Every other group sweeps backwards and finds the columns of b in the cache that the one before
///     read last.
class TileOrder {
 public:
  constexpr TileOrder() = default;
  /// Needs accepts().
  constexpr TileOrder(const ChunkOrder& chunks, std::int64_t columns, Tiling tiling, TileStart start = {})
      : cluster_rows_(tiling.cluster_rows), cluster_columns_(tiling.cluster_columns), steps_(chunks) {
    if (chunks.size() == 0 || columns == 0) return;
    columns_ = clusters_of(columns, tiling.tile_columns, tiling.cluster_columns);
    whole_ = part_of(chunks.stride(), tiling);
    const int last = chunks.size() - 1;
    short_ = part_of(chunks.rows_of(last).size, tiling);
    short_step_ = chunks.step_of(last);
    num_clusters_ = last * whole_.rows * columns_ + short_.rows * columns_;
    if (chunks.size() > 1) return;
    start_ = start;
    if (start.row > 0 && start.section == 0) start_.section = short_.rows * cluster_rows_;
    const int rows = (start_.section + cluster_rows_ - 1) / cluster_rows_;
    section_groups_ = (rows + tiling.group - 1) / tiling.group;
  }

  /// Whether the order exists: every size of the tiling is positive, every chunk has whole clusters, the
  /// columns too, and the tiles can be counted.
  [[nodiscard]] static constexpr bool accepts(const ChunkOrder& chunks, std::int64_t columns,
                                              const Tiling& tiling) {
    if (tiling.tile_rows < 1 || tiling.tile_columns < 1 || tiling.cluster_rows < 1 ||
        tiling.cluster_columns < 1 || tiling.group < 1 || columns < 0) {
      return false;
    }
    if (chunks.size() == 0 || columns == 0) return true;
    const std::int64_t tile_columns = tiles_of(columns, tiling.tile_columns);
    const std::int64_t whole = tiles_of(chunks.stride(), tiling.tile_rows);
    const std::int64_t last = tiles_of(chunks.rows_of(chunks.size() - 1).size, tiling.tile_rows);
    constexpr std::int64_t kMost = INT32_MAX;
    return tile_columns % tiling.cluster_columns == 0 && whole % tiling.cluster_rows == 0 &&
           last % tiling.cluster_rows == 0 && whole <= kMost / chunks.size() &&
           tile_columns <= kMost / (whole * chunks.size());
  }

  [[nodiscard]] constexpr int num_clusters() const { return num_clusters_; }

  /// The tile of the CTA at (row, column) of cluster number `index`, 0 <= index < num_clusters().
  [[nodiscard]] constexpr Tile tile(int index, int row = 0, int column = 0) const {
    if (start_.section > 0) return in_section(index, row, column);
    const int whole = whole_.rows * columns_;
    const int before_short = short_step_ * whole;
    const int behind_short = before_short + short_.rows * columns_;
    // All chunks are whole but one, which may be taken at any step.
    const bool is_behind = index >= behind_short;
    const bool is_short = !is_behind && index >= before_short;
    const int whole_index = is_behind ? index - behind_short : index;
    const int whole_step = is_short ? 0 : whole_index / whole;
    const int step = is_short ? short_step_ : is_behind ? short_step_ + 1 + whole_step : whole_step;
    const int in_chunk = is_short ? index - before_short : whole_index - whole_step * whole;
    const int groups_before = is_behind ? (step - 1) * whole_.groups + short_.groups : step * whole_.groups;
    return in_part(is_short ? short_ : whole_, steps_.chunk(step), in_chunk, groups_before, row, column);
  }

 private:
  /// A chunk in clusters: `large` groups of `height` rows, then the others of one row less.
  struct Part {
    int rows = 0;
    int groups = 0;
    int height = 0;
    int large = 0;
  };

  static constexpr std::int64_t tiles_of(std::int64_t extent, int tile) { return (extent + tile - 1) / tile; }
  static constexpr int clusters_of(std::int64_t extent, int tile, int cluster) {
    return static_cast<int>(tiles_of(extent, tile) / cluster);
  }
  static constexpr Part part_of(std::int64_t rows, const Tiling& tiling) {
    const int height = clusters_of(rows, tiling.tile_rows, tiling.cluster_rows);
    return in_groups(height, (height + tiling.group - 1) / tiling.group);
  }
  static constexpr Part in_groups(int rows, int groups) {
    Part part;
    part.rows = rows;
    part.groups = groups;
    part.height = (rows + groups - 1) / groups;
    part.large = rows - (part.height - 1) * groups;
    return part;
  }

  /// Section number s has the rows of clusters that end in its rows of tiles: up to (s + 1) * section /
  /// cluster rows.
  [[nodiscard]] constexpr Tile in_section(int index, int row, int column) const {
    const int section = ((index / columns_ + 1) * cluster_rows_ - 1) / start_.section;
    const int begin = section * start_.section / cluster_rows_;
    const int behind = (section + 1) * start_.section / cluster_rows_;
    const Part part = in_groups((behind < short_.rows ? behind : short_.rows) - begin, section_groups_);
    Tile tile = in_part(part, 0, index - begin * columns_, section * part.groups, row, column);
    const int tile_rows = short_.rows * cluster_rows_;
    tile.row += begin * cluster_rows_ + start_.row;
    if (tile.row >= tile_rows) tile.row -= tile_rows;
    return tile;
  }

  [[nodiscard]] constexpr Tile in_part(const Part& part, int chunk, int index, int groups_before, int row,
                                       int column) const {
    const int in_large = part.large * part.height * columns_;
    const bool is_large = index < in_large;
    const int height = is_large ? part.height : part.height - 1;
    const int rest = is_large ? index : index - in_large;
    const int group_in_kind = rest / (height * columns_);
    const int in_group = rest - group_in_kind * height * columns_;
    const int group = is_large ? group_in_kind : part.large + group_in_kind;
    const int first_row = is_large ? group * part.height : part.large * part.height + group_in_kind * height;
    const int sweep = in_group / height;
    const bool is_backwards = (groups_before + group) % 2 != 0;
    return {.chunk = chunk,
            .row = (first_row + in_group - sweep * height) * cluster_rows_ + row,
            .column = (is_backwards ? columns_ - 1 - sweep : sweep) * cluster_columns_ + column};
  }

  int cluster_rows_ = 1;
  int cluster_columns_ = 1;
  int columns_ = 0;  // in clusters
  int num_clusters_ = 0;
  int short_step_ = 0;
  int section_groups_ = 1;  // of every section, so that sweeps alternate
  TileStart start_;
  Part whole_;
  Part short_;  // of the last chunk, which may be as large as the others
  ChunkOrder steps_;
};

}  // namespace tandem::gemm
