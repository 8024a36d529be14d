#pragma once

#include <cstdint>
#include <tandem/base/divisor.hpp>
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
    columns_ = Divisor(clusters_of(columns, tiling.tile_columns, tiling.cluster_columns));
    whole_ = part_of(chunks.stride(), tiling);
    const int last = chunks.size() - 1;
    short_ = part_of(chunks.rows_of(last).size, tiling);
    short_step_ = chunks.step_of(last);
    whole_clusters_ = Divisor(whole_.rows * columns_.value());
    num_clusters_ = last * whole_clusters_.value() + short_.rows * columns_.value();
    if (chunks.size() == 1) set_sections(start, tiling.group);
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
    if (num_sections_ > 0) return in_section(index, row, column);
    const int whole = whole_clusters_.value();
    const int before_short = short_step_ * whole;
    const int behind_short = before_short + short_.rows * columns_.value();
    // All chunks are whole but one, which may be taken at any step.
    const bool is_behind = index >= behind_short;
    const bool is_short = !is_behind && index >= before_short;
    const int whole_index = is_behind ? index - behind_short : index;
    const int whole_step = is_short ? 0 : whole_index / whole_clusters_;
    const int step = is_short ? short_step_ : is_behind ? short_step_ + 1 + whole_step : whole_step;
    const int in_chunk = is_short ? index - before_short : whole_index - whole_step * whole;
    const int groups_before = is_behind ? (step - 1) * whole_.groups + short_.groups : step * whole_.groups;
    return in_part(Part::pick(is_short, short_, whole_), steps_.chunk(step), in_chunk, groups_before, row,
                   column);
  }

 private:
  /// Groups of as many rows, in clusters.
  struct Groups {
    Divisor rows;
    Divisor clusters;
    static constexpr Groups pick(bool first, const Groups& a, const Groups& b) {
      return {Divisor::pick(first, a.rows, b.rows), Divisor::pick(first, a.clusters, b.clusters)};
    }
  };
  /// A chunk, or a section, in clusters: `large` groups of some rows, then the others of one row less. One of
  /// several is picked field by field: a reference to it would put them all into a kernel's local memory.
  struct Part {
    int rows = 0;
    int groups = 0;
    int large = 0;
    Groups larger;
    Groups smaller;
    static constexpr Part pick(bool first, const Part& a, const Part& b) {
      return {first ? a.rows : b.rows, first ? a.groups : b.groups, first ? a.large : b.large,
              Groups::pick(first, a.larger, b.larger), Groups::pick(first, a.smaller, b.smaller)};
    }
  };

  static constexpr std::int64_t tiles_of(std::int64_t extent, int tile) { return (extent + tile - 1) / tile; }
  static constexpr int clusters_of(std::int64_t extent, int tile, int cluster) {
    return static_cast<int>(tiles_of(extent, tile) / cluster);
  }
  [[nodiscard]] constexpr Part part_of(std::int64_t rows, const Tiling& tiling) const {
    const int height = clusters_of(rows, tiling.tile_rows, tiling.cluster_rows);
    return in_groups(height, (height + tiling.group - 1) / tiling.group);
  }
  [[nodiscard]] constexpr Part in_groups(int rows, int groups) const {
    Part part;
    part.rows = rows;
    part.groups = groups;
    if (rows == 0) return part;
    const int height = (rows + groups - 1) / groups;
    part.large = rows - (height - 1) * groups;
    part.larger = groups_of(height);
    if (height > 1) part.smaller = groups_of(height - 1);
    return part;
  }
  [[nodiscard]] constexpr Groups groups_of(int rows) const {
    return {Divisor(rows), Divisor(rows * columns_.value())};
  }

  /// Section number s has the rows of clusters that end in its rows of tiles, up to (s + 1) * section /
  /// cluster rows: some have a row more than others, and the last one has what is left.
  constexpr void set_sections(TileStart start, int group) {
    if (start.row > 0 && start.section == 0) start.section = short_.rows * cluster_rows_.value();
    if (start.section == 0) return;
    start_row_ = start.row;
    section_ = Divisor(start.section);
    const int rows = start.section / cluster_rows_;
    const int most_rows = (start.section + cluster_rows_.value() - 1) / cluster_rows_;
    section_groups_ = (most_rows + group - 1) / group;
    num_sections_ = (short_.rows * cluster_rows_.value() - 1) / section_ + 1;
    if (num_sections_ > 1) {
      small_section_ = in_groups(rows, section_groups_);
      large_section_ = in_groups(rows + 1, section_groups_);
    }
    last_section_ = in_groups(short_.rows - begin_of(num_sections_ - 1), section_groups_);
  }
  [[nodiscard]] constexpr int begin_of(int section) const {
    return section * section_.value() / cluster_rows_;
  }
  [[nodiscard]] constexpr Tile in_section(int index, int row, int column) const {
    const int section = ((index / columns_ + 1) * cluster_rows_.value() - 1) / section_;
    const int begin = begin_of(section);
    const bool is_last = section == num_sections_ - 1;
    const bool is_large = begin_of(section + 1) - begin > small_section_.rows;
    const Part part =
        Part::pick(is_last, last_section_, Part::pick(is_large, large_section_, small_section_));
    Tile tile = in_part(part, 0, index - begin * columns_.value(), section * section_groups_, row, column);
    const int tile_rows = short_.rows * cluster_rows_.value();
    tile.row += begin * cluster_rows_.value() + start_row_;
    if (tile.row >= tile_rows) tile.row -= tile_rows;
    return tile;
  }

  [[nodiscard]] constexpr Tile in_part(const Part& part, int chunk, int index, int groups_before, int row,
                                       int column) const {
    const int in_large = part.large * part.larger.clusters.value();
    const bool is_large = index < in_large;
    const Groups groups = Groups::pick(is_large, part.larger, part.smaller);
    const int rest = is_large ? index : index - in_large;
    const int group_in_kind = rest / groups.clusters;
    const int in_group = rest - group_in_kind * groups.clusters.value();
    const int group = is_large ? group_in_kind : part.large + group_in_kind;
    const int before = is_large ? 0 : part.large * part.larger.rows.value();
    const int sweep = in_group / groups.rows;
    const int row_in_group = in_group - sweep * groups.rows.value();
    const bool is_backwards = (groups_before + group) % 2 != 0;
    return {
        .chunk = chunk,
        .row = (before + group_in_kind * groups.rows.value() + row_in_group) * cluster_rows_.value() + row,
        .column = (is_backwards ? columns_.value() - 1 - sweep : sweep) * cluster_columns_ + column};
  }

  Divisor cluster_rows_;
  int cluster_columns_ = 1;
  Divisor columns_;  // in clusters
  Divisor whole_clusters_;
  int num_clusters_ = 0;
  int short_step_ = 0;
  Part whole_;
  Part short_;  // of the last chunk, which may be as large as the others
  ChunkOrder steps_;
  int num_sections_ = 0;  // of a single chunk; 0: it is not cut
  int start_row_ = 0;     // of tiles
  Divisor section_;
  int section_groups_ = 1;  // of every section, so that sweeps alternate
  Part small_section_;
  Part large_section_;
  Part last_section_;
};

}  // namespace tandem::gemm
