// The record of how large the programs are (programs.record): read, judged and renewed by the tests beside it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace stockade::layout {

using Figures = std::map<std::string, uint64_t>;  // by program

class ProgramRecord {
  public:
    ProgramRecord()
        : path_(absl::StrCat(std::getenv("STOCKADE_SOURCE_DIR"), "/tests/layout/programs.record")) {
        std::ifstream file(path_);
        for (std::string line; std::getline(file, line);) {
            if (absl::StartsWith(line, "#")) {
                comments_.push_back(line);
                continue;
            }
            std::istringstream words(line);
            std::string name, word;
            words >> name;
            if (columns_.empty()) {
                while (words >> word) columns_.push_back(word);
                continue;
            }
            for (const std::string& column : columns_) {
                uint64_t figure = 0;
                if (words >> word && absl::SimpleAtoi(word, &figure)) figures_[column][name] = figure;
            }
        }
    }
    bool Has(const std::string& column) const { return figures_.contains(column); }

    // Each figure within a fifth of its record, and the programs those of the record. A smaller one fails as
    // well: beside a record that is far above it, it could grow again unseen.
    void Expect(const std::string& column, const Figures& found) {
        if (std::getenv("STOCKADE_RENEW_RECORD") != nullptr) return Renew(column, found);
        const Figures& known = figures_[column];
        for (const auto& [name, figure] : found) {
            const auto row = known.find(name);
            ASSERT_NE(row, known.end()) << name << " has no " << column << " in programs.record: renew it";
            EXPECT_LE(figure * 5, row->second * 6)
                << name << " grew from " << row->second << " to " << figure << " (" << column
                << "): find out why, or renew the record";
            EXPECT_GE(figure * 6, row->second * 5)
                << name << " shrank from " << row->second << " to " << figure << ": renew the record";
        }
        for (const auto& [name, figure] : known)
            EXPECT_TRUE(found.contains(name)) << name << " of programs.record is gone: renew the record";
    }

  private:
    void Renew(const std::string& column, const Figures& found) {
        if (std::find(columns_.begin(), columns_.end(), column) == columns_.end()) columns_.push_back(column);
        figures_[column] = found;
        std::ofstream file(path_);
        for (const std::string& line : comments_) file << line << "\n";
        file << "PROGRAM";
        std::map<std::string, std::string> rows;
        for (const std::string& name : columns_) {
            file << " " << name;
            for (const auto& [program, figure] : figures_[name]) rows[program];
        }
        for (auto& [program, row] : rows) {
            for (const std::string& name : columns_) {
                const auto figure = figures_[name].find(program);
                absl::StrAppend(&row, " ",
                                figure == figures_[name].end() ? "-" : absl::StrCat(figure->second));
            }
            file << "\n" << program << row;
        }
        file << "\n";
        EXPECT_TRUE(file.flush().good()) << path_;
    }

    const std::string path_;
    std::vector<std::string> comments_;
    std::vector<std::string> columns_;
    std::map<std::string, Figures> figures_;  // by column
};

}  // namespace stockade::layout
