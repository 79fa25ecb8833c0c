"""Reads a table from text. The text is made once, beside this script."""

import os
import sys

import pandas

rows = int(sys.argv[1])
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"table-{rows}.csv")
if not os.path.exists(path):
    with open(path + ".part", "w") as file:
        file.write("key,name,value\n")
        file.writelines(f"{i * 7919 % rows},name {i % 1000},{i * 0.25}\n" for i in range(rows))
    os.replace(path + ".part", path)
table = pandas.read_csv(path)
print(len(table), table["key"].sum(), table["value"].sum(), table["name"].nunique())
