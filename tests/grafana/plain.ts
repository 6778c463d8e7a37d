// JSON has no enums: a value of a string enum is one of its texts.
export type Plain<T> = T extends string
  ? `${T}`
  : T extends number | boolean | null | undefined
    ? T
    : T extends Array<infer Item>
      ? Array<Plain<Item>>
      : T extends object
        ? { [Key in keyof T]: Plain<T[Key]> }
        : T;
