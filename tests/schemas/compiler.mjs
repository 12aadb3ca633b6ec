// Asks the TypeScript compiler what is wrong with modules.

import { createRequire } from "node:module";
import path from "node:path";

/** The compiler's errors about each of the TypeScript texts, which may import the packages in the folder `modules`. */
export function typeErrors(modules, texts) {
    const folder = path.resolve(modules);
    const ts = createRequire(path.join(folder, "index.js"))("typescript");
    const sources = new Map(texts.map((text, index) => [path.join(folder, `module-${index}.ts`), text]));
    const options = {
        module: ts.ModuleKind.NodeNext,
        moduleResolution: ts.ModuleResolutionKind.NodeNext,
        target: ts.ScriptTarget.ES2022,
        noEmit: true,
        skipLibCheck: true,
        strict: true,
        types: [],
    };
    const host = ts.createCompilerHost(options);
    const { fileExists, readFile, getSourceFile } = host;
    host.fileExists = (file) => sources.has(file) || fileExists.call(host, file);
    host.readFile = (file) => sources.get(file) ?? readFile.call(host, file);
    host.getSourceFile = (file, ...rest) =>
        sources.has(file) ? ts.createSourceFile(file, sources.get(file), ...rest) : getSourceFile.call(host, file, ...rest);
    const program = ts.createProgram([...sources.keys()], options, host);
    return [...sources.keys()].map((file) => {
        const source = program.getSourceFile(file);
        const found = [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)];
        return found.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, " "));
    });
}
